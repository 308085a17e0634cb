"""People whose rows are in memory."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.records import by_identity
from tutelage._internal.typing import IntArray, Matrix, Private
from tutelage.ballots import BallotSum
from tutelage.digests import RunningDigest, data_digest
from tutelage.features.base import FeatureMap, features_of_private
from tutelage.partition import Shards
from tutelage.people.blocks import PeopleBlock, SumOfBlocks, Vectors, WithProgress, blocks_of
from tutelage.privacy import PrivacyUnit
from tutelage.tables import Table


@final
@by_identity
class PeopleInMemory(Private):
    """People whose rows are in memory. See `tutelage.people.blocks.People`."""

    rows: Matrix  # as numbers
    labels: IntArray  # class index of each row
    shards: Shards  # the teacher of each row or, if every person is a teacher, its person
    # Ids of people who withdrew, from the register of the ledger; their rows are left out.
    left_out: str = ""
    # The id of each row, also of people who withdrew; None without ids.
    known: npt.NDArray[np.object_] | None = None
    whole: Any = None  # the rows with all their columns; None where that is `rows`
    tiers: IntArray | None = None  # number of the tier of each person, if people have tiers
    # Index of the group of each row, where a test report tells groups apart.
    groups: IntArray | None = None
    first_map: None = None

    @property
    def unit(self) -> PrivacyUnit:
        """Whose rows belong together."""
        return self.shards.unit

    @property
    def n_people(self) -> int:
        """How many people there are or, where teachers are trained, how many teachers."""
        return self.shards.n_shards

    @property
    def n_teachers(self) -> int | None:
        """How many teachers there are; None if they are people with ids, whose number is private."""
        return self.shards.n_shards if self.shards.people is None else None

    @property
    def shard_ids(self) -> list[str]:
        """The ids of the people who cast ballots, in the order of their shards; none if rows have no ids."""
        return [] if self.shards.people is None else self.shards.people.tolist()

    def digest(self) -> bytes:
        """Return the digest of the entities or, where none are named, of the rows with all their columns."""
        if self.known is not None:
            return RunningDigest().add_people(self.ids()).digest()
        if isinstance(self.whole, Table):
            return RunningDigest().add_table(self.whole).digest()
        return data_digest(self.rows if self.whole is None else self.whole)

    def ids(self) -> list[str]:
        """Return the ids of all people, each once, also of those who withdrew; none if rows have no ids."""
        return [] if self.known is None else np.unique(self.known).tolist()

    def only(self, people: npt.NDArray[np.bool_]) -> "PeopleInMemory":
        """Return some of the people, where every person is a teacher."""
        rows = people[self.shards.assignment]
        return replace(
            self,
            rows=self.rows[rows],
            labels=self.labels[rows],
            shards=self.shards.only(people),
            tiers=None if self.tiers is None else self.tiers[people],
            groups=None if self.groups is None else self.groups[rows],
        )

    def in_tier(self, number: int) -> "PeopleInMemory":
        """Return the people of one tier, by its number."""
        return self.only(np.asarray(self.tiers) == number)

    def split(self, share: float) -> "tuple[PeopleInMemory, PeopleInMemory]":
        """Return those who teach, and about such a share of the people who do not, by their ids.

        A person is on the same side in every release.
        """
        digests = [
            hashlib.sha256(b"holdout\0" + name.encode("utf-8", "surrogatepass"))
            for name in self.shard_ids
        ]
        places = [int.from_bytes(digest.digest()[:8], "big") / 2**64 for digest in digests]
        is_apart = np.array(places) < share
        return self.only(~is_apart), self.only(is_apart)

    def through(self, feature_map: FeatureMap | None, n_features: int, /) -> "PeopleInMemory":
        """Return the people with their rows as a map shows them, each shard by itself."""
        if feature_map is None:
            return self
        return replace(
            self, rows=features_of_private(feature_map, self.rows, self.shards.rows, n_features)
        )

    def blocks(self) -> Iterator[PeopleBlock]:
        """Yield all rows, of whole people at a time."""
        return blocks_of(PeopleBlock(self.rows, self.labels, self.shards.assignment, self.groups))

    def sum_of_ballots(
        self, sum_of: SumOfBlocks, with_progress: WithProgress, kept: Vectors, /
    ) -> BallotSum:
        """Return the sum of the ballots of all people."""
        return sum_of(with_progress(self.blocks(), self.n_people), kept)
