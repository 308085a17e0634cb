"""The register of a ledger: which releases were begun, with which noise, and whose data it has seen."""

from collections.abc import Callable, Collection, Sequence
from typing import final

import numpy as np

from tutelage._internal.records import Entries
from tutelage._internal.typing import Mask
from tutelage.digests import RunningDigest, canonical, is_fingerprint_of, keyed_name
from tutelage.events import Event
from tutelage.exceptions import LateProposalError
from tutelage.ledger.entries import EntryKind
from tutelage.ledger.opened import OpenedLedger
from tutelage.ledger.people import UNNAMED, cohorts, key_of, withdrawn


@final
class Register:
    """The releases and the people that a ledger knows; it spends nothing."""

    def __init__(self, opened: OpenedLedger) -> None:
        self._opened = opened

    def noise_of(self, identity: str, question: str) -> float | None:
        """Return the noise with which a release was begun, or else the first of its question that has a name."""
        key = self._opened.key
        with self._opened.hold() as read:
            begun = self._opened.begun_as(read, identity)
            if begun is not None and begun.content["noise"]:
                return begun.content["noise"]
            alike = read.entries_with("question", keyed_name(key, "question", question))
        if not alike:
            return None
        return alike[0].content["noise"]

    def earlier_releases(self, question: str, release: str) -> tuple[str, ...]:
        """Return the releases of a question that began before the one of this name."""
        name = keyed_name(self._opened.key, "question", question)
        with self._opened.hold() as read:
            alike = read.entries_with("question", name)
        names = [entry.content["release"] for entry in alike]
        if release in names:
            names = names[: names.index(release)]
        return tuple(names)

    def fitting_by_cohort(self, worst_case: Event) -> dict[str, int]:
        """Return how many such releases fit into what each cohort has left; empty where releases have no names."""
        with self._opened.hold() as read:
            sums = read.checkpoint()
        limit = self._opened.limit
        return {
            cohort: limit.fitting(worst_case, sums.accounts[cohort]) for cohort in sums.releases
        }

    def check(self, release: str | None, identity: str, worst_case: Event) -> None:
        """Refuse, before it begins, a release whose name or whose lack of one would be refused later.

        A new one that has a name may spend the whole budget of the people who come with it on its worst case.
        """
        with self._opened.hold() as read:
            sums = read.checkpoint()
            if release is None:
                self._opened.check_nameless(sums)
                return
            self._opened.check_name(read, release, identity)
        if release not in sums.releases:
            self._opened.check_unit(worst_case)
            self._opened.check_room(worst_case, 1, 0)

    def check_data(self, digest: bytes, *, changed: bool) -> None:
        """Refuse a ledger that is tied to other data, unless these may have changed."""
        if self._opened.is_new:
            return
        with self._opened.hold() as read:
            self._opened.check_data(read, digest, changed=changed)

    def is_of(self, digest: bytes) -> bool:
        """Return whether the ledger is tied to the data set with this digest."""
        with self._opened.hold() as read:
            known = read.checkpoint().fingerprint
        return bool(known) and is_fingerprint_of(digest, known, self._opened.key)

    def knows(self, people: Sequence[str]) -> Mask | None:
        """Return which people, each given once by `canonical_ids`, were in its releases; None if unknown; private.

        It knows everyone whose id was given. Otherwise, it can only tell if its people are exactly these: unless it
        `names_all`, others than those whom it finds may have been there too.
        """
        key = self._opened.key
        with self._opened.hold() as read:
            known = cohorts(read)
        is_known = np.array([key_of(key, person) in known for person in people], dtype=bool)

        if names_all(self._opened, known):
            return is_known
        if self.is_of(RunningDigest().add_people(people).digest()):
            return np.ones(len(people), dtype=bool)
        if not is_known.any():
            return None
        return is_known

    def names_all(self) -> bool:
        """Return whether all releases gave the ids of their people, so that it knows who was in none."""
        with self._opened.hold() as read:
            return names_all(self._opened, cohorts(read))

    def not_withdrawn(self, people: Sequence[str]) -> tuple[Mask, str]:
        """Return which of these people, by canonical ids, have not withdrawn, and what `Whom` takes; private."""
        key = self._opened.key
        with self._opened.hold() as read:
            gone = withdrawn(read)
            digest = read.checkpoint().withdrawn
        if not gone:
            return np.ones(len(people), dtype=bool), digest
        stay = [key_of(key, person) not in gone for person in people]
        return np.array(stay, dtype=bool), digest

    def propose(self, proposal: Entries) -> None:
        """Write down what will be published of the labels, before the first is reserved; again, it changes nothing."""
        text = canonical(proposal)  # in which 1 and 1.0 are two
        proposals = self._opened.history().proposals
        if text in map(canonical, proposals):
            return
        with self._opened.hold(write=True) as write:
            proposals = self._opened.history_in(write).proposals
            if text in map(canonical, proposals):  # another was quicker
                return
            if write.checkpoint().asked:
                raise LateProposalError(
                    f"{self._opened} has labels already, and a proposal must come before the first of them: labels "
                    "could have shaped it. Publish the worst-case epsilon of these labels."
                )
            write.add(EntryKind.PROPOSED, proposal=proposal)

    def publish(self, manifest: Callable[[str], str]) -> None:
        """Write down the hash of a manifest, which `manifest` returns of the present head, before it is published."""
        with self._opened.hold(write=True) as write:
            head = write.last().hash.hex()
            write.add(EntryKind.RELEASED, manifest=manifest(head))


def names_all(opened: OpenedLedger, known: Collection[bytes]) -> bool:
    """Return whether a ledger knows everybody who was in its releases."""
    return bool(known) and key_of(opened.key, UNNAMED) not in known
