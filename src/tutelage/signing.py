"""Keys of signers: the private file signs, and the public file, which all others may have, checks its signatures."""

import os
import re
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Self, final

from tutelage._internal.extras import install
from tutelage._internal.gate import AnyPath, read_given
from tutelage._internal.outputs import NEVER, claim_output, is_exposed, open_private, warned_of_disk
from tutelage._internal.records import (
    by_identity,
    file_entries,
    frozen,
    plain,
    record_in,
    sha256_of,
)
from tutelage._internal.releases import MANIFEST
from tutelage._internal.typing import NeverPickled
from tutelage.digests import canonical
from tutelage.exceptions import ConfigError, InvalidDataError, InvalidParameterError, quote

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
except ImportError:
    raise ConfigError(f"Signatures need cryptography: {install('signing')}.") from None

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


def require_name(value: object, owner: str) -> str:
    """Return `value` if it can name a signer: 1 to 40 letters, digits, '-' and '_', the first no '-' or '_'."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidParameterError(
            f"{owner}.name",
            "be 1 to 40 ASCII letters, digits, '-' or '_', the first a letter or digit",
            quote(value),
        )
    return value


def require_hexadecimal(value: object, digits: int, name: str, owner: str) -> str:
    """Return `value` if it is a string of this number of lower-case hexadecimal digits."""
    if not isinstance(value, str) or not re.fullmatch(f"[0-9a-f]{{{digits}}}", value):
        raise InvalidParameterError(
            f"{owner}.{name}", f"be {digits} lower-case hex digits", quote(value)
        )
    return value


def document(kind: str, record: object) -> bytes:
    """Return a record as one line of canonical JSON."""
    return canonical(file_entries(kind, record)).encode() + b"\n"


def fingerprint_of(record: object) -> str:
    """Return 128 bits of the SHA-256 of a public record, to compare by telephone before its keys are trusted."""
    digits = sha256_of(canonical(plain(record)).encode())[:32]
    return " ".join(re.findall("....", digits))


def has_signed(signing_key: str, message: bytes, signature: bytes) -> bool:
    """Return whether `signature` is that of `message` by an Ed25519 key in hexadecimal digits: RFC 8032."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(signing_key)).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def save_keys(
    folder: AnyPath, name: str, private_document: bytes, public_document: Callable[[Path], bytes]
) -> tuple[Path, Path]:
    """Write ``<name>.private.json``, readable by its owner only, and ``<name>.public.json``; return both paths.

    Keys are never overwritten. Where a process that was killed left a private file without its public one, the public
    document of that private file is written.
    """
    private = Path(folder) / f"{name}.private.json"
    public = Path(folder) / f"{name}.public.json"
    if any((path / MANIFEST).exists() for path in private.absolute().parents):
        raise InvalidDataError(
            f"Keys must not be in {folder}, which is handed over whole. Name another folder."
        )
    try:
        private.parent.mkdir(parents=True, exist_ok=True)
        with (
            claim_output(private, NEVER, checked=False) as claim_of_private,
            claim_output(public, NEVER, checked=False) as claim_of_public,
        ):
            if public.exists():
                raise InvalidDataError(f"{folder} has keys of {name}, which are never overwritten.")
            if not private.exists():
                with claim_of_private.write() as part, open_private(part) as file:
                    file.write(private_document)
            content = public_document(private)
            with claim_of_public.write() as part:
                part.write_bytes(content)
    except OSError as error:
        raise InvalidDataError(f"{private} cannot be written: {error.strerror}.") from None
    return private, public


def read_private(path: Path) -> bytes:
    """Return the bytes of a private file; one that others than its owner may read is refused."""
    content = read_given(path)
    if os.name == "posix" and is_exposed(path.stat()) and not warned_of_disk(path):
        raise InvalidDataError(
            f"{path} holds private keys that others may read. Run: chmod 600 {path}"
        )
    return content


@final
@frozen
class VerifyKey:
    """The key that checks the signatures of one signer; public."""

    name: str  # 1 to 40 letters, digits, '-' and '_'
    signing_key: str  # Ed25519, 64 hexadecimal digits

    def __post_init__(self) -> None:
        require_name(self.name, "VerifyKey")
        require_hexadecimal(self.signing_key, 64, "signing_key", "VerifyKey")

    @property
    def fingerprint(self) -> str:
        """128 bits of the SHA-256 of name and key, to compare by telephone before the key is trusted."""
        return fingerprint_of(self)

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read the public file that `SigningKey.save` wrote, checking every value."""
        damaged = InvalidDataError(
            f"{path} is no complete public file of a signer, as `tutelage key` makes it. Ask for it again."
        )
        return record_in(read_given(path), "verify key", cls, damaged)

    def has_signed(self, message: bytes, signature: bytes) -> bool:
        """Return whether `signature` is this signer's of `message`."""
        return has_signed(self.signing_key, message, signature)


@final
@by_identity
class SigningKey(NeverPickled):
    """The key that signs; private. Make one with `generate` or `load`."""

    _stored_by = "save(folder)"
    name: str
    _private: Ed25519PrivateKey

    def __post_init__(self) -> None:
        require_name(self.name, "SigningKey")

    @classmethod
    def generate(cls, name: str) -> Self:
        """Make a fresh key for a signer."""
        return cls(name, Ed25519PrivateKey.generate())

    @property
    def public(self) -> VerifyKey:
        """The key that checks what this one signs."""
        return VerifyKey(self.name, self._private.public_key().public_bytes_raw().hex())

    def sign(self, message: bytes) -> bytes:
        """Return the Ed25519 signature of `message`, 64 bytes."""
        return self._private.sign(message)

    def save(self, folder: AnyPath) -> tuple[Path, Path]:
        """Write the private and the public file, as `save_keys` does, and return both paths."""
        stored = _StoredKey(self.name, self._private.private_bytes_raw().hex())
        return save_keys(
            folder,
            self.name,
            document("signing key", stored),
            lambda private: document("verify key", SigningKey.load(private).public),
        )

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read the private file that `save` wrote; one that others than its owner may read is refused."""
        damaged = InvalidDataError(
            f"{path} is no complete private file of a signer, as `tutelage key` makes it. Name another, or restore "
            "its copy."
        )
        stored = record_in(read_private(Path(path)), "signing key", _StoredKey, damaged)
        try:
            private = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(stored.signing))
        except ValueError:
            raise damaged from None
        return cls(stored.name, private)

    def __repr__(self) -> str:
        return f"SigningKey(<key hidden: private>, name={self.name!r})"


@frozen
class _StoredKey:
    name: str
    signing: str = field(repr=False)
