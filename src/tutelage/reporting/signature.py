"""A signature of a results folder, through its manifest of every file that the manifest names; or of a ledger's head.

The functions that sign and check it are passed in, because nothing here may hold a private key.
"""

import json
from collections.abc import Callable
from pathlib import Path

from tutelage._internal.records import Entries, file_entries
from tutelage._internal.releases import (
    HEAD_KIND,
    MANIFEST,
    SIGNATURE,
    SIGNATURE_KIND,
    Manifest,
    read_signature,
    signature_text,
    today,
)
from tutelage.exceptions import InvalidDataError

# So that no other signature of the key passes for one.
_CONTEXT = b"tutelage release, signature format 1\n"


def signature_of(folder: Path, name: str, sign: Callable[[bytes], bytes]) -> str:
    """Return the signature file of a folder whose files are those of its manifest, by the key of `name`."""
    manifest = Manifest.read_whole(folder)
    content = file_entries(SIGNATURE_KIND, {"signer": name, "manifest": manifest.hash})
    return _sign(content, sign)


def signed_head(state: Entries, name: str, sign: Callable[[bytes], bytes]) -> str:
    """Return the file by which the key of `name` states the newest entry of a ledger, and how far it is spent."""
    return _sign(file_entries(HEAD_KIND, {"signer": name, "day": today(), **state}), sign)


def read_head(path: Path) -> Entries:
    """Return what a signed head says; whether it is genuine is not checked."""
    return read_signature(path, HEAD_KIND, str | int | float)


def checked_head(path: Path, name: str, has_signed: Callable[[bytes, bytes], bool]) -> Entries:
    """Return what `signed_head` stated; refuse a file that the key of `name` did not sign."""
    content = read_head(path)
    _check_signed(path, content, name, has_signed)
    return content


def check_signature(
    folder: Path, name: str, has_signed: Callable[[bytes, bytes], bool]
) -> Manifest:
    """Return the manifest of a folder; refuse one that the key of `name` did not sign as it is."""
    path = folder / SIGNATURE
    content = read_signature(path)
    _check_signed(path, content, name, has_signed)
    manifest = Manifest.read_whole(folder)
    if content.get("manifest") != manifest.hash:
        raise InvalidDataError(
            f"{folder / MANIFEST} was changed after {name} signed it. Use the signed folder."
        )
    return manifest


def _sign(content: Entries, sign: Callable[[bytes], bytes]) -> str:
    return signature_text({**content, "signature": sign(_message(content)).hex()})


def _check_signed(
    path: Path,
    content: Entries,
    name: str,
    has_signed: Callable[[bytes, bytes], bool],
) -> None:
    try:
        signature = bytes.fromhex(content.pop("signature"))
    except (KeyError, TypeError, ValueError):
        raise InvalidDataError(f"{path} is not a {content['file']}. Sign again.") from None
    if not has_signed(_message(content), signature):
        raise InvalidDataError(
            f"{path} was not signed with the key of {name}, or was changed. Get the file and the key again from the "
            "signer."
        )


def _message(content: Entries) -> bytes:
    return _CONTEXT + json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
