"""Records: what files and messages hold, each with a type; what is read is exactly what would be written."""

import json
from typing import Any, Self

import msgspec

from tutelage._internal.validation import shown
from tutelage.exceptions import InvalidDataError, TutelageError

FORMAT = 1  # of every kind of file


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="file"):
    """What a file or message holds. It names its kind, which is the tag of the class, and its format."""

    format: int = FORMAT

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON-ready values."""
        return msgspec.json.decode(msgspec.json.encode(self))

    @classmethod
    def from_json(cls, data: bytes, damaged: TutelageError) -> Self:
        """Return the record that JSON holds; with a key that is missing, unknown or there twice, it is `damaged`.

        What a class of values refuses is raised as it is.
        """
        kind = cls.__struct_config__.tag
        try:
            content, head = json.loads(data, object_pairs_hook=_unique), msgspec.json.decode(data, type=_Head)
            found = msgspec.json.decode(data, type=cls) if (head.file, head.format) == (kind, FORMAT) else None
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise (error.__cause__ if isinstance(error.__cause__, TutelageError) else damaged) from None
        if head.file == kind and head.format != FORMAT:
            raise another_format(f"A {kind} file", head.format)
        if found is None or found.as_dict() != content:
            raise damaged
        return found


class _Head(msgspec.Struct):
    file: str
    format: int


def another_format(what: str, found: int) -> InvalidDataError:
    """Return the refusal of a file of a format that this version does not know."""
    return InvalidDataError(
        f"{what} has another format ({shown(found)}); read it with the version of tutelage that made it."
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError
    return content
