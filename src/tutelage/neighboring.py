"""What one person can change: the unit of privacy and the neighbouring relation.

Whatever the relation, its consequence for the votes is the same and is all that the accounting uses: at most one
teacher's ballot changes, so one count falls by one, another rises by one, or a ballot turns from or into an
abstention and one count moves by one.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import final


@final
class NeighboringRelation(StrEnum):
    """When two private data sets count as neighbours."""

    CHANGE_ONE_ROW = "one row has other contents; how many rows there are is public"
    ADD_REMOVE_OR_CHANGE_ONE_ENTITY = "one entity's rows are added, removed or have other contents"
    ADD_REMOVE_OR_CHANGE_WITHIN_SILO = (
        "one entity's rows are added, removed or have other contents, all within one silo that has others; "
        "which silos there are is public"
    )
    CHANGE_ONE_BALLOT = "one teacher's ballots change arbitrarily"


@final
@dataclass(frozen=True, slots=True)
class PrivacyUnit:
    """Whose influence an epsilon bounds.

    Parameters
    ----------
    name : str
        What one unit is, in the words of the data: ``"row"``, ``"patient_id"``, ``"one teacher's data"``.
    neighboring : NeighboringRelation
        How neighbouring data sets differ.
    """

    name: str
    neighboring: NeighboringRelation


ONE_TEACHER = PrivacyUnit("one teacher's data", NeighboringRelation.CHANGE_ONE_BALLOT)
ONE_ENTITY = PrivacyUnit("one entity's whole data", NeighboringRelation.CHANGE_ONE_BALLOT)
