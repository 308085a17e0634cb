"""The folder in which a member keeps its keys, the rosters that it accepted, and what it must not forget."""

import secrets
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import final

from tutelage._internal.gate import AnyPath
from tutelage._internal.outputs import sync
from tutelage.events import TIER_STEPS
from tutelage.exceptions import FederationError, StaleBatchError
from tutelage.ledger.disk import hold_folder
from tutelage_consortium.consortium import Consortium
from tutelage_consortium.files import matching_names, read_within, write_new
from tutelage_consortium.keys import Identity, Role

_ROSTERS = "rosters"
_RETIRED = "retired-keys"
_MOST_KEPT_BYTES = 2**31


@final
class Home:
    """The folder of one member on its own machine; nothing in it is for others.

    Parameters
    ----------
    path : path-like
        A folder that holds one private key file, as `Identity.save` writes it.
    """

    def __init__(self, path: AnyPath) -> None:
        self._path = Path(path)
        keys = sorted(self._path.glob("*.private.json"))
        if len(keys) != 1:
            raise FederationError(
                f"{self._path} must hold one private key file, NAME.private.json. It holds {len(keys)}. To "
                "replace a lost key, type `tutelage consortium join INVITE --home HOME --new-keys`; for a coordinator, "
                "`tutelage consortium new TERMS --home HOME`."
            )
        self.identity = Identity.load(keys[0])
        self.member = self.identity.member

    @staticmethod
    def retire_keys(path: Path) -> None:
        """Move the keys of a home away, so that new ones can be made; stores and ledger stay."""
        retired = path / _RETIRED / secrets.token_hex(4)
        retired.mkdir(mode=0o700, parents=True)
        for kind in ("private", "public"):
            for file in path.glob(f"*.{kind}.json"):
                file.rename(retired / file.name)

    def join(self, consortium: Consortium, words: str) -> None:
        """Take part in `consortium` as this roster says, from now on; in another folder, in another consortium.

        `words` are its six words as the members read them to each other, not taken from the mailbox.
        """
        if consortium.words != " ".join(words.lower().split()):
            raise FederationError(
                f"`words` must be the six words of the roster that was proposed, {consortium.words!r}. They are not. "
                "Do not accept it before all members read the same ones to each other."
            )
        before = self.latest_roster()
        if before is not None:
            if before.roster_hash == consortium.roster_hash:
                return
            if before.fingerprint != consortium.fingerprint:
                raise FederationError(
                    f"{self._path} has joined another consortium. Use a folder of its own for each."
                )
            if consortium.roster <= before.roster:
                raise FederationError(
                    f"`roster` of the consortium must be above {before.roster}, the number of the roster that "
                    f"{self.member.name} has accepted. Got {consortium.roster}. An older one is never taken "
                    "back."
                )
        if self.member not in consortium.members:
            raise FederationError(
                f"The consortium does not name {self.member.name} with the keys of this folder. The "
                "coordinator must propose a roster that does."
            )
        consortium.save(self._path / _ROSTERS / f"{consortium.roster}.json")

    def consortium(self) -> Consortium:
        """Return the consortium that was joined, with the roster that was accepted last."""
        joined = self.latest_roster()
        if joined is None:
            raise FederationError(
                f"{self._path} has joined no consortium yet. Run `tutelage consortium serve`."
            )
        return joined

    def latest_roster(self) -> Consortium | None:
        """Return the consortium with the roster that was accepted last, or None before any was joined."""
        numbers = [
            int(found[1]) for found in matching_names(self._path / _ROSTERS, r"(\d{1,9})\.json")
        ]
        return Consortium.load(self._path / _ROSTERS / f"{max(numbers)}.json") if numbers else None

    def require_known(self, people: Mapping[str, int], steps: Mapping[str, int]) -> None:
        """Refuse numbers of people, or lengths of ballots, that are not those of a roster that this member accepted.

        A member's own ballots are never longer than in the last one.
        """
        name = self.member.name
        last = self.consortium().steps_at.get(name, TIER_STEPS)
        if steps.get(name, TIER_STEPS) > last:
            raise StaleBatchError(
                f"A release began with longer ballots of {name} than the roster that it accepted last. Nothing was "
                "spent. Ask for a new release."
            )
        for path in (self._path / _ROSTERS).glob("*.json"):
            roster = Consortium.load(path)
            if (people, steps) == (roster.people_at, roster.steps_at):
                return
        raise StaleBatchError(
            f"A release began with other hospitals, numbers of people or lengths of ballots than any roster "
            f"that {self.member.name} has accepted. Nothing was spent. Ask for a new release."
        )

    def consortium_as(self, role: Role) -> Consortium:
        """Return the consortium that was joined, once this member is found to have `role` in it, with these keys."""
        consortium = self.consortium()
        member = self.member
        if member not in consortium.members:
            raise FederationError(
                f"The keys in {self._path} are not those that {member.name} joined with."
            )
        if member.role is not role:
            articles = {Role.ENTITY: "an entity", Role.COMPUTING: "a computing party"}
            is_, needed = (articles.get(each, "the aggregator") for each in (member.role, role))
            raise FederationError(f"{member.name} is {is_}, but only {needed} can do this.")
        return consortium

    def read_kept(self, kind: str, batch: str, names: Collection[str]) -> dict[str, bytes] | None:
        """Return what `keep` stored under these names, or None where nothing was; other content is refused."""
        folder = self._path / kind / batch
        if not folder.exists():
            return None
        found = {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}
        if set(found) != set(names):
            raise StaleBatchError(
                f"{folder} does not contain the stored content. Restore it from a copy; it cannot be created again."
            )
        return {name: read_within(path, _MOST_KEPT_BYTES) for name, path in found.items()}

    def keep(self, kind: str, batch: str, files: dict[str, bytes]) -> dict[str, bytes]:
        """Store files of a batch by name, all of them or none, on the disk before this returns.

        Content that was stored first stays: an earlier or a racing process's files are returned, where it came first.
        """
        final_place = self._path / kind / batch
        final_place.parent.mkdir(mode=0o700, exist_ok=True)
        with hold_folder(final_place.parent, ".*"):
            draft = final_place.with_name(f".{batch}.{secrets.token_hex(8)}")
            draft.mkdir(mode=0o700)
            try:
                for name, content in files.items():
                    write_new(draft / name, content)
                sync(draft)
                draft.rename(final_place)  # refused where a folder with files is there already
            except OSError:
                shutil.rmtree(draft, ignore_errors=True)
                if not final_place.is_dir():
                    raise
        sync(final_place.parent)
        stored = self.read_kept(kind, batch, files)
        if stored is None:
            raise StaleBatchError(f"The stored state of batch {batch} is gone.")
        return stored
