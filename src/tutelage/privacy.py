"""Privacy units, neighboring relations, and the two types of ε: publishable and private.

A `PublicEpsilon` may be published; a `PrivateEpsilon` depends on the private votes. All relations have one consequence
for the votes, and the accounting uses nothing else: at most one teacher's ballot changes, so one count falls by one,
another rises by one, or a ballot turns from or into an abstention and one count moves by one.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn, Self, cast, final

from tutelage._internal.drawing import printed_up, round_up, summary
from tutelage._internal.records import frozen
from tutelage._internal.typing import NeverPickled
from tutelage.exceptions import InvalidDataError, NotPublishableError

ROW = "row"  # name of the unit where each row is protected alone
KEY = "neighboring"  # of a relation in every file


@final
class NeighboringRelation(StrEnum):
    """When two private data sets count as neighbors. Files store the value, a code that never changes."""

    CHANGE_ONE_ROW = "row"
    ADD_REMOVE_OR_CHANGE_ONE_ENTITY = "entity"
    ADD_REMOVE_OR_CHANGE_WITHIN_SILO = "silo"
    CHANGE_ONE_BALLOT = "ballot"

    @property
    def sentence(self) -> str:
        """How neighboring data sets differ, in words; files store the code instead."""
        return _SENTENCES[self]

    @classmethod
    def of(cls, value: object, where: str = "a file") -> Self:
        """Return the relation that is stored in `where`, by its code."""
        if value in list(cls):
            return cls(value)
        raise InvalidDataError(
            f"`{KEY}` in {where} must be one of {', '.join(cls)}; if a later version wrote the file, "
            "upgrade tutelage."
        )


_ROW, _ENTITY, _SILO, _BALLOT = NeighboringRelation
_SENTENCES = {
    _ROW: "the contents of one row change; the number of rows is public",
    _ENTITY: "the rows of one entity are added, removed or changed",
    _SILO: "the rows of one entity are added, removed or changed, all within one silo that has others; which silos "
    "exist is public",
    _BALLOT: "one teacher's ballots change arbitrarily",
}


@final
@frozen
class PrivacyUnit:
    """The unit whose influence an epsilon bounds.

    Parameters
    ----------
    name : str
        Name of one unit, in the words of the data: ``"row"``, ``"patient_id"``, ``"one teacher's data"``.
    neighboring : NeighboringRelation
        How neighboring data sets differ.
    """

    name: str
    neighboring: NeighboringRelation

    def __str__(self) -> str:
        return f"'{self.name}' ({self.neighboring.sentence})"

    def as_dict(self) -> dict[str, str]:
        """Return the unit as plain values: its name, and the code of its relation."""
        return {"name": self.name, KEY: self.neighboring.value}

    @property
    def facts(self) -> dict[str, str]:
        """The unit as rows of a table for readers."""
        return {"privacy unit": self.name, "neighboring data": self.neighboring.sentence}

    @classmethod
    def from_dict(cls, record: object) -> Self:
        """Return the unit that `as_dict` wrote."""
        entries = dict[object, object]()
        if isinstance(record, dict):
            entries = cast("dict[object, object]", record)
        name = entries.get("name")
        if set(entries) != {"name", KEY} or type(name) is not str:
            raise InvalidDataError(
                f"The unit of privacy in a file must be a text `name` and a `{KEY}`, nothing else."
            )
        return cls(name, NeighboringRelation.of(entries[KEY]))


# Their names are in files too, and ledgers compare them.
ONE_TEACHER = PrivacyUnit("one teacher's data", NeighboringRelation.CHANGE_ONE_BALLOT)
ONE_ENTITY = PrivacyUnit("one entity's whole data", NeighboringRelation.CHANGE_ONE_BALLOT)


HIDDEN = "depends on the private votes; `.reveal()` opens it for the data set owner"


@final
@dataclass(frozen=True, slots=True, repr=False)
class PublicEpsilon:
    """An (ε, δ) guarantee that may be published: computed from public parameters, or tested.

    `str`, `repr`, and `format` with any format of floats round ε and δ upward. `float` returns the number ε, which
    ``<``, ``<=``, ``>`` and ``>=`` compare; so ``"%.2f" % epsilon`` and `round` of that number may round downward.
    ``==`` compares all fields, and is never true of a plain number.

    Parameters
    ----------
    epsilon : float
        Upper bound on the privacy loss, in nats.
    delta : float
        Additive term of the guarantee: P[outcome] ≤ e^ε · P[outcome of a neighbor] + δ.
    unit : PrivacyUnit
        Whom it protects and against which change.
    method : str
        The theorem that gave the value.
    order : float or None
        Rényi order at which the value was attained, if any.
    simulated : bool
        True where the noise was seeded: the number is then what real noise would have cost, not a guarantee.
    output_dependent : bool
        True where it holds for the outcome at hand, after a private test or noised cost, and not for the mechanism:
        other votes, or other noise, would have given another number.
    """

    epsilon: float
    delta: float
    unit: PrivacyUnit
    method: str
    order: float | None = None
    simulated: bool = False
    output_dependent: bool = False

    def __str__(self) -> str:
        return f"ε = {round_up(self.epsilon)} at δ = {printed_up(self.delta)}{self._taint}"

    def __repr__(self) -> str:
        return f"{round_up(self.epsilon)} (δ = {printed_up(self.delta)}){self._taint}"

    @property
    def _taint(self) -> str:
        """Note that is printed behind a number that seeded noise made."""
        return " (simulated noise: not private)" if self.simulated else ""

    def __format__(self, format_spec: str) -> str:
        if not format_spec:
            return str(self)
        return printed_up(self.epsilon, format_spec)

    def __float__(self) -> float:
        return self.epsilon

    def __lt__(self, other: "float | PublicEpsilon") -> bool:
        return self.epsilon < float(other)

    def __le__(self, other: "float | PublicEpsilon") -> bool:
        return self.epsilon <= float(other)

    def __gt__(self, other: "float | PublicEpsilon") -> bool:
        return self.epsilon > float(other)

    def __ge__(self, other: "float | PublicEpsilon") -> bool:
        return self.epsilon >= float(other)

    def _repr_html_(self) -> str:  # pyright: ignore[reportUnusedFunction]
        """Return what notebooks show."""
        rows = {**self.unit.facts, "proved by": self.method}
        return summary("Privacy guarantee:", str(self), rows)


@final
class PrivateEpsilon(NeverPickled):
    """An (ε, δ) value that depends on the private votes: guarded, and opened only by an explicit call.

    It cannot be formatted as or converted to a number, compared by value or pickled, so it cannot slip into a log, a
    card or a saved model. Publishing it would itself leak.

    Parameters
    ----------
    epsilon, order : float
        The private value, in nats, and the Rényi order at which it was attained; private too.
    delta, unit, method
        As for `PublicEpsilon`.
    """

    __slots__ = ("_epsilon", "_order", "delta", "method", "unit")

    def __init__(
        self, epsilon: float, order: float, delta: float, unit: PrivacyUnit, method: str
    ) -> None:
        self._epsilon = epsilon
        self._order = order
        self.delta = delta
        self.unit = unit
        self.method = method

    def reveal(self) -> float:
        """Return the private epsilon, for the data set owner only."""
        return self._epsilon

    def reveal_order(self) -> float:
        """Return the private Rényi order of the value, for the data set owner only."""
        return self._order

    def __repr__(self) -> str:
        return f"PrivateEpsilon(<{HIDDEN}>, delta={printed_up(self.delta)}, method={self.method!r})"

    def __format__(self, format_spec: str) -> str:
        if format_spec:
            raise NotPublishableError(
                f"A PrivateEpsilon cannot be formatted as a number: its value {HIDDEN}."
            )
        return repr(self)

    def __float__(self) -> NoReturn:
        raise NotPublishableError(f"A PrivateEpsilon is not a plain number: its value {HIDDEN}.")
