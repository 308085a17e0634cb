"""Records: what files and messages hold, as classes with types; what is read is exactly what would be written."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Any, TypeVar, dataclass_transform

import msgspec

from tutelage.exceptions import InvalidDataError, TutelageError, quote

FORMAT = 1  # of every kind of file
Hash = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_CODE = re.compile(r"Invalid enum value .* at `\$(?:.*\.)?(\w+)`", re.DOTALL)
Entries = dict[str, Any]  # of JSON or TOML
Names = tuple[str, ...]
Made = TypeVar("Made")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[Made]) -> type[Made]:
    """Make a class a record that does not change: a frozen dataclass with slots."""
    return dataclass(frozen=True, slots=True)(kind)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def by_identity(kind: type[Made]) -> type[Made]:
    """Make a class such a record that equals itself alone, and is shown by its fields unless it is `Hidden`."""
    # This import loads numpy, which the first page of help does not need.
    from tutelage._internal.typing import Hidden

    return dataclass(frozen=True, slots=True, eq=False, repr=not issubclass(kind, Hidden))(kind)


@dataclass_transform(
    frozen_default=True, eq_default=False, kw_only_default=True, field_specifiers=(field,)
)
def by_keywords(kind: type[Made]) -> type[Made]:
    """Make a class a record of `by_identity` whose fields are given by their names alone."""
    from tutelage._internal.typing import Hidden

    return dataclass(
        frozen=True, slots=True, eq=False, kw_only=True, repr=not issubclass(kind, Hidden)
    )(kind)


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def settable(kind: type[Made]) -> type[Made]:
    """Make a class a record whose fields can be set, which equals itself alone and has no `repr` of its own."""
    return dataclass(eq=False, repr=False)(kind)


def settle(record: object, name: str, check: Callable[..., object], *limits: object) -> None:
    """Check a setting of a record while it is made, and keep what the check returns."""
    object.__setattr__(
        record, name, check(getattr(record, name), *limits, name, type(record).__name__)
    )


class AnotherFormatError(InvalidDataError):
    """A file of a format that this version does not know."""


def sha256_of(content: bytes) -> str:
    """Return the SHA-256 of content, 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def plain(record: object) -> Any:
    """Return a record as plain JSON-ready values."""
    return json.loads(json.dumps(msgspec.to_builtins(record)))


def file_entries(kind: str, record: object) -> Entries:
    """Return what a file of this kind holds."""
    return {"file": kind, "format": FORMAT, **plain(record)}


def parse(data: bytes | str, kind: str, damaged: TutelageError, key: str = "file") -> Entries:
    """Return the entries of JSON that says that it is of this kind, and of the format that is known; without these."""
    try:
        content = json.loads(
            data, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite
        )
        is_known = content.pop(key) == kind and type(content["format"]) is int
    except (ValueError, RecursionError, TypeError, AttributeError, KeyError):
        raise damaged from None
    if not is_known:
        raise damaged
    number = content.pop("format")
    if number != FORMAT:
        raise AnotherFormatError(
            f"A {kind} file has another format ({quote(number)}); read it with the version of tutelage that made it."
        )
    return content


def record_in(data: bytes | str, kind: str, of: type[Made], damaged: TutelageError) -> Made:
    """Return the record that JSON of this kind holds."""
    return as_record(parse(data, kind, damaged), of, damaged)


def as_record(content: object, kind: type[Made], damaged: TutelageError) -> Made:
    """Return the record of these entries; an entry that is missing, unknown or of another type is damage.

    A refusal of the class itself is raised unchanged.
    """
    try:
        record = msgspec.convert(content, kind)
        is_whole = plain(record) == plain(content)
    # Text with half of a surrogate pair is no Unicode, which msgspec finds only when it quotes or compares it.
    except (RecursionError, UnicodeError):
        raise damaged from None
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, TutelageError):
            raise error.__cause__ from None
        code = _CODE.search(str(error))
        if code is not None:
            unknown = f"`{code[1]}` has a value that is not known; if a later version wrote the file, upgrade tutelage."
            raise type(damaged)(unknown) from None
        raise damaged from None
    if not is_whole:
        raise damaged
    return record


def _unique(pairs: list[tuple[str, Any]]) -> Entries:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError
    return content


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError
    return number
