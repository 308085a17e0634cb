"""A member's own folder: its private key, the consortium it joined, and what it must not forget about a batch."""

import os
import secrets
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import final

from tutelage.exceptions import FederationError, StaleBatchError
from tutelage.federation.consortium import Consortium
from tutelage.federation.documents import read_within, sync_folder, write_new
from tutelage.federation.keys import Identity, Role

_CONSORTIUM = "consortium.json"
_MOST_BYTES = 2**31


@final
class Home:
    """The folder of one member on its own machine; nothing in it is for others.

    Parameters
    ----------
    path : path-like
        A folder that holds one private key file, as `Identity.save` writes it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        keys = sorted(self._path.glob("*.private.json"))
        if len(keys) != 1:
            raise FederationError(
                f"{self._path} must hold one private key file, NAME.private.json. It holds {len(keys)}. Make one with "
                "`tutelage federate keygen`."
            )
        self.identity = Identity.load(keys[0])

    def join(self, consortium: Consortium, fingerprint: str) -> None:
        """Take part in `consortium`, as found in the mailbox, from now on, and in no other.

        `fingerprint` is that of the terms as the members read it to each other, not taken from the mailbox.
        """
        if consortium.fingerprint != "".join(fingerprint.split()).lower():
            raise FederationError(
                f"The consortium's terms have the fingerprint {consortium.fingerprint}, not the one given. Do not join "
                "before all members read the same one to each other."
            )
        if self.identity.member not in consortium.members:
            raise FederationError(
                f"The consortium does not name {self.identity.member.name} with the keys of this folder. Send its "
                "public key file to the author of the terms."
            )
        joined = self._path / _CONSORTIUM
        if not joined.exists():
            consortium.save(joined)
        elif self.consortium().fingerprint != consortium.fingerprint:
            raise FederationError(f"{self._path} has joined another consortium. Use a folder of its own for each.")

    def consortium(self) -> Consortium:
        """Return the consortium that was joined."""
        joined = self._path / _CONSORTIUM
        if not joined.exists():
            raise FederationError(f"{self._path} has joined no consortium yet. Run `tutelage federate join`.")
        return Consortium.load(joined)

    def consortium_as(self, role: Role) -> Consortium:
        """Return the consortium that was joined, once this member is found to have `role` in it, with these keys."""
        consortium, member = self.consortium(), self.identity.member
        if member not in consortium.members:
            raise FederationError(f"The keys in {self._path} are not those that {member.name} joined with.")
        if member.role is not role:
            articles = {Role.ENTITY: "an entity", Role.COMPUTING: "a computing party"}
            is_, needed = (articles.get(each, "the aggregator") for each in (member.role, role))
            raise FederationError(f"{member.name} is {is_}, and this is for {needed}.")
        return consortium

    def kept(self, kind: str, batch: str, names: Collection[str]) -> dict[str, bytes] | None:
        """Return what `keep` stored under these names, or None where nothing was; other content is refused."""
        folder = self._path / kind / batch
        if not folder.exists():
            return None
        found = {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}
        if set(found) != set(names):
            raise StaleBatchError(
                f"{folder} does not contain the stored content. Restore it from a copy; it cannot be created again."
            )
        return {name: read_within(path, _MOST_BYTES) for name, path in found.items()}

    def keep(self, kind: str, batch: str, files: dict[str, bytes]) -> dict[str, bytes]:
        """Store files of a batch by name, all of them or none, on the disk before this returns.

        What was stored first stays: an earlier or a racing process's files are returned, where it came first.
        """
        final_place = self._path / kind / batch
        final_place.parent.mkdir(mode=0o700, exist_ok=True)
        draft = final_place.with_name(f".{batch}.{secrets.token_hex(8)}")
        draft.mkdir(mode=0o700)
        try:
            for name, content in files.items():
                write_new(draft / name, content, 0o600)
            sync_folder(draft)
            draft.rename(final_place)  # refused where a folder with files is there already
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            if not final_place.is_dir():
                raise
        sync_folder(final_place.parent)
        stored = self.kept(kind, batch, files)
        if stored is None:
            raise StaleBatchError(f"The stored state of batch {batch} is gone.")
        return stored
