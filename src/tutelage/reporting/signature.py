"""A signature of a results folder: of its manifest, and through it of every file that the manifest names.

The functions that sign and check it are passed in, because nothing here may hold a private key.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tutelage._internal.releases import MANIFEST, SIGNATURE, SIGNATURE_FORMAT, SIGNATURE_KIND, Manifest, read_signature
from tutelage.exceptions import InvalidDataError

_CONTEXT = b"tutelage release, signature format 1\n"  # so that no other signature of the key passes for one


def signature_of(folder: Path, name: str, sign: Callable[[bytes], bytes]) -> str:
    """Return the signature file of a folder whose files are those of its manifest, by the key of `name`."""
    content = {
        "file": SIGNATURE_KIND,
        "format": SIGNATURE_FORMAT,
        "signer": name,
        "manifest": Manifest.checked(folder).hash,
    }
    return json.dumps({**content, "signature": sign(_message(content)).hex()}, indent=1) + "\n"


def check_signature(folder: Path, name: str, has_signed: Callable[[bytes, bytes], bool]) -> Manifest:
    """Return the manifest of a folder; refuse one that the key of `name` did not sign as it is."""
    path = folder / SIGNATURE
    content = read_signature(path)
    try:
        signature = bytes.fromhex(content.pop("signature"))
    except (KeyError, TypeError, ValueError):
        raise InvalidDataError(f"{path} is not a signature of a release. Sign the folder again.") from None
    if not has_signed(_message(content), signature):
        raise InvalidDataError(
            f"{path} was not signed with the key of {name}, or was changed. Get the folder and the key again from the "
            "signer."
        )
    manifest = Manifest.checked(folder)
    if content.get("manifest") != manifest.hash:
        raise InvalidDataError(f"{folder / MANIFEST} was changed after {name} signed it. Use the signed folder.")
    return manifest


def _message(content: dict[str, Any]) -> bytes:
    return _CONTEXT + json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
