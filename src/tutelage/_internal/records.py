"""Records: what files and messages hold, each with a type; what is read is exactly what would be written."""

import json
import re
from typing import Annotated, Any, Self

import msgspec

from tutelage._internal.validation import shown
from tutelage.exceptions import InvalidDataError, TutelageError

FORMAT = 1  # of every kind of file
Hash = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_UNKNOWN_CODE = re.compile(r"Invalid enum value .* at `\$(?:.*\.)?(\w+)`", re.DOTALL)


class AnotherFormatError(InvalidDataError):
    """A file of a format that this version does not know."""


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="file"):
    """What a file or message holds. It names its kind, which is the tag of the class, and its format."""

    format: int = FORMAT

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON-ready values."""
        return msgspec.json.decode(msgspec.json.encode(self))

    def to_text(self) -> str:
        """Return the record as JSON for people to read."""
        return json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, data: bytes | str, damaged: TutelageError) -> Self:
        """Return the record that JSON holds; with a key that is missing, unknown or there twice, it is `damaged`.

        What a class of values refuses is raised as it is.
        """
        kind, found = cls.__struct_config__.tag, None
        try:
            content = json.loads(data, object_pairs_hook=_unique)
            known = isinstance(content, dict) and content.get(cls.__struct_config__.tag_field) == kind
            another = known and type(content.get("format")) is int and content["format"] != FORMAT
            found = msgspec.json.decode(data, type=cls) if known and not another else None
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            if isinstance(error.__cause__, TutelageError):
                raise error.__cause__ from None
            if code := _UNKNOWN_CODE.search(str(error)):
                raise InvalidDataError(
                    f"`{code[1]}` of a {kind} is none that is known; if a later version wrote it, upgrade tutelage."
                ) from None
            raise damaged from None
        if another:
            raise AnotherFormatError(
                f"A {kind} file has another format ({shown(content['format'])}); read it with the version of tutelage "
                "that made it."
            )
        if found is None or found.as_dict() != content:
            raise damaged
        return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError
    return content
