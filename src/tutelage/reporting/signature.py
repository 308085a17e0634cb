"""A signature over a card and the head of its ledger, in a file beside the card.

The signature is of a list: the head of the ledger and the SHA-256 of every file of the card. The functions that sign
and check it are passed in, because nothing here may hold a private key.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tutelage.exceptions import InvalidDataError
from tutelage.reporting.reading import read_card

SIGNATURE = "card.signature.json"
SIGNED = ("card.json", "card.md", "card.html")
_FORMAT = 1
_CONTEXT = b"tutelage privacy card, signature format 1\n"  # so that no other signature of the key passes for one
_MOST_BYTES = 2**16


def write_signature(folder: Path, name: str, sign: Callable[[bytes], bytes]) -> Path:
    """Sign the card in a folder for the holder of a key, and return the path of the signature.

    Parameters
    ----------
    folder : Path
        The folder with the three files of the card.
    name : str
        The name of the signer, as in the key.
    sign : callable
        Returns the signature of a message.
    """
    content = {
        "file": "card signature",
        "format": _FORMAT,
        "signer": name,
        "head": read_card(folder / "card.json").budget["head"],
        "sha256": {file: _hash(folder / file) for file in SIGNED},
    }
    path = folder / SIGNATURE
    record = {**content, "signature": sign(_message(content)).hex()}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


def check_signature(folder: Path, name: str, has_signed: Callable[[bytes, bytes], bool]) -> str:
    """Return the head of the ledger that was signed with a card; refuse a card that the key did not sign as it is.

    Parameters
    ----------
    folder, name : Path, str
        As for `write_signature`.
    has_signed : callable
        Whether a message has this signature of the key.

    Raises
    ------
    InvalidDataError
        If a file is missing or unreadable, another key signed, or a file of the card or the signature was changed.
    """
    path = folder / SIGNATURE
    content = read_signature(path)
    try:
        signature = bytes.fromhex(content.pop("signature"))
        listed, head = dict(content["sha256"]), content["head"]
    except (KeyError, TypeError, ValueError):
        raise InvalidDataError(f"{path} is not a signature of a card. Sign the card again.") from None
    if not has_signed(_message(content), signature):
        raise InvalidDataError(
            f"{path} was not signed with the key of {name}, or was changed. Get the card and the key again from the "
            "signer."
        )
    for file in SIGNED:
        if listed.get(file) != _hash(folder / file):
            raise InvalidDataError(f"{folder / file} was changed after {name} signed it. Use the signed file.")
    if read_card(folder / "card.json").budget["head"] != head:
        raise InvalidDataError(f"{path} is of another head of the ledger than the card. Sign the card again.")
    return head


def _message(content: dict[str, Any]) -> bytes:
    return _CONTEXT + json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def read_signature(path: Path) -> dict[str, Any]:
    """Return what a signature file says, unchecked."""
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_MOST_BYTES))
    except OSError as error:
        raise InvalidDataError(f"{path} cannot be read: {error.strerror}. Sign the card with --sign.") from None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or content.get("file") != "card signature":
        raise InvalidDataError(f"{path} is not a signature of a card. Sign the card again.")
    if content.get("format") != _FORMAT:
        raise InvalidDataError(f"{path} is of another format than {_FORMAT}. Upgrade tutelage.")
    return content


def _hash(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidDataError(f"{path} cannot be read: {error.strerror}. Name the folder of a card.") from None
