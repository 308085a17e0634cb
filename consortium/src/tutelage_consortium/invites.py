"""The invite that a coordinator gives each member, and how a member takes part, as its home remembers it."""

import io
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import final

from tutelage._internal.records import Entries, frozen, record_in
from tutelage.exceptions import InvalidDataError
from tutelage.signing import document
from tutelage_consortium.files import MOST_BYTES_OF_A_DOCUMENT, read_within, write_again, write_new

_INVITE = "invite.json"
_SETTINGS = "settings.json"
_KIT = "kit"
_MOST_FILES = 100


@final
@frozen
class Invite:
    """An invitation of one member, one file: the terms, its name, and its keys for the server, if there is one."""

    name: str
    terms: Entries  # as the terms file says them
    server: str | None  # host:port
    mailbox: str | None  # instead of a server: a folder that all members reach
    # By path: what the transport needs to know the server, and to be known by it.
    kit: dict[str, bytes]

    def save(self, path: Path) -> None:
        """Write the invitation to a file that only its owner can read: whoever has it can speak to the server."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            about = _About(self.name, self.terms, self.server, self.mailbox)
            archive.writestr(_INVITE, document("invite", about))
            for name, content in self.kit.items():
                archive.writestr(f"{_KIT}/{name}", content)
        write_new(path, buffer.getvalue())

    @classmethod
    def load(cls, path: Path) -> "Invite":
        """Read what `save` wrote, checking every value."""
        damaged = InvalidDataError(
            f"{path} is no complete invite. Ask the coordinator for it again."
        )
        data = read_within(path)
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                infos = archive.infolist()
                if (
                    len(infos) > _MOST_FILES
                    or sum(info.file_size for info in infos) > MOST_BYTES_OF_A_DOCUMENT
                ):
                    raise damaged
                found = {info.filename: archive.read(info) for info in infos}
        except (
            zipfile.BadZipFile,
            zlib.error,
            NotImplementedError,
            RuntimeError,
            EOFError,
            ValueError,
            OSError,
        ):
            raise damaged from None
        about = record_in(found.pop(_INVITE, b""), "invite", _About, damaged)
        kit = dict[str, bytes]()
        for name, content in found.items():
            first, *rest = PurePosixPath(name).parts
            if first != _KIT or not rest or ".." in rest or name.endswith("/"):
                raise damaged
            kit["/".join(rest)] = content
        return cls(about.name, about.terms, about.server, about.mailbox, kit)

    def unpack(self, folder: Path) -> None:
        """Write the keys for the server to a folder."""
        for name, content in self.kit.items():
            write_new(folder / name, content)


@frozen
class _About:
    name: str
    terms: Entries
    server: str | None
    mailbox: str | None


@final
@frozen
class Place:
    """How a member takes part, as its home remembers it."""

    terms: Entries
    mailbox: str  # folder
    server: str | None = None
    data: str | None = None  # file of a hospital's private rows
    id: str | None = None
    label: str | None = None

    def save(self, home: Path) -> None:
        """Write this to the home of a member, in place of what was there."""
        write_again(home / _SETTINGS, document("place", self))

    @classmethod
    def is_in(cls, home: Path) -> bool:
        """Return whether a member has joined, or a coordinator has founded, in this folder to the end."""
        return (home / _SETTINGS).exists()

    @classmethod
    def load(cls, home: Path) -> "Place":
        """Read what `save` wrote."""
        damaged = InvalidDataError(
            f"{home / _SETTINGS} is damaged. Join again with the invite, in this folder."
        )
        return record_in(read_within(home / _SETTINGS), "place", cls, damaged)
