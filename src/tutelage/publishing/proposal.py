"""A proposal: an ε fixed in advance, and the private test of whether the exact cost of a release bears it out.

Propose, test, release (Dwork and Lei 2009; for data-dependent losses Redberg, Zhu and Wang 2023), made for costs of
which it is known how far each changed teacher can move them (`reach`). The test looks at how many teachers would have
to change before the cost passes what was proposed, and passes with a chance that falls with that number in the best
way that differential privacy allows. The guarantee, with its proof: docs/proofs/release.md.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import ceil, exp, floor, inf, log, log1p
from typing import Self, final

import numpy as np
import scipy

from tutelage._internal.gate import AnyPath, read_input
from tutelage._internal.outputs import json_form
from tutelage._internal.records import FORMAT, Entries, as_record, parse, plain
from tutelage._internal.typing import FloatArray
from tutelage._internal.validation import integer_at_least, number_between, probability
from tutelage.accounting import Accountant, data_independent
from tutelage.events import CERTAIN, Composed, PublicationTest, Repeated
from tutelage.exceptions import (
    ConfigError,
    InvalidDataError,
    InvalidParameterError,
    NothingToGainError,
    UnsupportedEventError,
)
from tutelage.privacy import PrivacyUnit
from tutelage.publishing.cost_envelope import reach_of

# Shares of δ: passes, passes by luck, and what is claimed otherwise.
PASSING = 0.8
TAIL = 0.1
REFUSED = 0.1
# Nats by which a refusal may tell neighbors apart; ε grows by some percent, the test costs half.
_REFUSALS = 0.4
PROPOSAL = json_form("a proposal", "proposal", "kind")
_UPWARD = 1e-9  # nats or relative: far above the rounding of the few operations behind an ε
_MOST_LEVELS = 10_000
_MOST_ORDER = 1e6
_LEVELS = 96  # changed teachers looked at; a test is over long before
_ORDERS = (0.5, 200.0)  # least and largest λ − 1
_NONE = 1e6  # in place of an ε that there is not


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Proposed ε and the test that decides; public, to be fixed before the private votes are looked at.

    Parameters
    ----------
    delta : float
        δ of the whole claim, whichever way the test ends.
    order : float
        Rényi order λ > 1 at which the private cost is bounded.
    caps : tuple of float
        Cost in nats that is allowed within 0, 1, … changed teachers; not falling. Beyond the last, any is.
    chances : tuple of int
        Chance to pass at shortfall 0, 1, …, in units of 2⁻⁶⁰; one more than `caps`. The last must be below δ/10.
    unit : PrivacyUnit
        What changes one teacher.
    """

    delta: float
    order: float
    caps: tuple[float, ...]
    chances: tuple[int, ...]
    unit: PrivacyUnit

    def __post_init__(self) -> None:
        probability(self.delta, "delta", "Proposal")
        object.__setattr__(self, "caps", tuple(float(cap) for cap in self.caps))
        object.__setattr__(self, "chances", self.event().chances)
        is_order = 1 < self.order <= _MOST_ORDER
        are_rising = all(
            0 <= earlier <= later < inf for earlier, later in pairwise((0.0, *self.caps))
        )
        are_as_many = 1 <= len(self.caps) == len(self.chances) - 1 <= _MOST_LEVELS
        if not (is_order and are_rising and are_as_many):
            raise InvalidParameterError(
                "Proposal.order",
                f"be above 1 and at most {_MOST_ORDER:g}; $caps must be finite, at least 0 and "
                "not decreasing; $chances must have one entry more than $caps",
            )
        if self.chances[-1] > TAIL * self.delta * CERTAIN:
            raise InvalidParameterError(
                "Proposal.chances", "end with a chance of at most a tenth of $delta"
            )

    @property
    def epsilon(self) -> float:
        """The ε that is published if the test passes: proved from the other numbers, never stored."""
        # Pass at shortfall i while a neighbor is at i + 1: docs/proofs/release.md, Theorem 1.
        logs = [log(chance / CERTAIN) for chance in self.chances]
        tail = _log_kappa(self.order) - log(PASSING * self.delta)
        largest = 0.0
        for cap, here, below in zip(self.caps, logs[:-1], logs[1:], strict=True):
            needed = cap + here - below + (here + tail) / (self.order - 1)
            largest = max(largest, needed)
        return largest + _UPWARD

    @property
    def withheld_epsilon(self) -> float:
        """ε of everything, in the usual sense of (ε, δ), where labels are kept back unless the test passes.

        Only where all queries were fixed in advance and answered without checks, and this is the ledger's first
        publication: otherwise what decides the bit depends on the answers kept back.
        """
        fails = [log((CERTAIN - chance) / CERTAIN) for chance in self.chances]
        steepest = max(later - earlier for earlier, later in pairwise(fails))
        return max(self.epsilon, steepest + _UPWARD)

    @property
    def refusal(self) -> float:
        """Chance that the test refuses although the cost is as proposed."""
        return 1 - self.chances[0] / CERTAIN

    def event(self, *, simulated: bool = False) -> PublicationTest:
        """Return the test as an event, which is spent whether it passes or fails."""
        return PublicationTest(self.chances, self.delta, self.unit, simulated)

    def shortfall(self, reach: FloatArray) -> int:
        """Return by how many teachers the cost, by its `reach` U_0, U_1, …, misses what was proposed.

        Private, and moved by one teacher by one. There are at least as many U as caps.
        """
        # reach: (teachers,); first_above, needed: (levels,)
        # s is the least with U_j ≤ cap_{j+s} for all j; caps do not fall, so each U_j asks for the first cap above it.
        levels = len(self.caps)
        first_above = np.searchsorted(self.caps, reach[:levels], side="left")
        needed = first_above - np.arange(levels)
        return int(max(0, needed.max()))

    def as_dict(self) -> Entries:
        """Return the proposal as plain JSON-ready values; what follows from them is left out but for ε, to be read."""
        return {"kind": "proposal", "format": FORMAT, "epsilon": self.epsilon, **plain(self)}

    @classmethod
    def read(cls, path: AnyPath) -> Self:
        """Return the proposal in a file, after its ε was proved again.

        Raises
        ------
        ConfigError
            If it is no such file, or was changed.
        """
        try:
            return cls.from_json(read_input(path))
        except OSError as error:
            reason = f"{error.strerror}."
        except (InvalidDataError, InvalidParameterError) as error:
            reason = str(error)
        raise ConfigError(
            f"The proposal {path} cannot be used: {reason} Make it with `tutelage publish propose`."
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the proposal that `as_dict` wrote, after its ε was proved again."""
        damaged = InvalidDataError(
            "A Proposal cannot be read, because its text is incomplete or was changed."
        )
        content = parse(text, "proposal", damaged, "kind")
        content.pop("epsilon", None)
        return as_record(content, cls, damaged)


def best_chances(
    caps: FloatArray, order: float, delta: float, refusal: float
) -> tuple[float, list[int]]:
    """Return the smallest ε for which the caps can be tested, or ∞, and the probabilities of that test."""
    # caps: (levels,)
    low = 0.0
    high = 1.0
    best = _fastest_chances(caps, order, delta, refusal, high)
    while best is None:
        low = high
        high = 2 * high
        if high > caps[-1] + 100 * (1 - log(delta)):
            return inf, []
        best = _fastest_chances(caps, order, delta, refusal, high)

    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        chances = _fastest_chances(caps, order, delta, refusal, middle)
        if chances is None:
            low = middle
        else:
            high = middle
            best = chances
    return high, best


def _fastest_chances(
    caps: FloatArray,
    order: float,
    delta: float,
    refusal: float,
    epsilon: float,
) -> list[int] | None:
    """Return chances that fall as fast as ε allows, down to a tenth of δ; None if that takes more levels than caps."""
    # caps: (levels,)
    tail = _log_kappa(order) - log(PASSING * delta)
    chances = [floor((1 - refusal) * CERTAIN)]
    for cap in caps.tolist():
        here = log(chances[-1] / CERTAIN)
        step = epsilon - cap - (here + tail) / (order - 1)
        if step <= 0:
            return None
        # Not so fast that refusals tell neighbors apart: the test is charged for the larger of both.
        most_refusals = floor(exp(min(epsilon, _REFUSALS)) * (CERTAIN - chances[-1]))
        by_passing = ceil(chances[-1] * exp(-step))
        chances.append(max(by_passing, CERTAIN - most_refusals, 1))
        if chances[-1] <= TAIL * delta * CERTAIN:
            return chances
    return None


def _log_kappa(order: float) -> float:
    """Return log κ, κ = (1/λ)(1 − 1/λ)^{λ−1}: (1 − e^ε/z)₊ ≤ κ (z e^{−ε})^{λ−1} for all z > 0."""
    return (order - 1) * log1p(-1 / order) - log(order)


def propose(
    proxy: Accountant,
    delta: float,
    *,
    queries: int | None = None,
    margin: float = 2.0,
    refusal: float = 0.05,
) -> Proposal:
    """Return the smallest ε that votes like the public ones would bear, with the test that private votes must pass.

    To be fixed before the first label is released.

    Parameters
    ----------
    proxy : Accountant
        The planned releases, added with *public* votes in place of the private ones: from teachers trained on public
        data, or made up. The proposal reveals them.
    delta : float
        δ of the whole claim, in (0, 1).
    queries : int, optional
        Planned queries, where they are not as many as were added to `proxy`: its costs are scaled to them.
    margin : float
        How many times the cost of the public votes is allowed, ≥ 1; more makes a refusal less likely and ε larger.
    refusal : float
        Chance, in (0, 0.5], that the test refuses although the cost is as allowed; less makes ε larger.

    Returns
    -------
    Proposal
        Its `epsilon` is what will be published if the private votes pass. If none is below the data-independent one,
        `NothingToGainError` is raised.
    """
    probability(delta, "delta", "propose")
    number_between(margin, 1, 1e6, "margin", "propose")
    number_between(refusal, 1e-6, 0.5, "refusal", "propose")
    planned = proxy.event_at_limits()
    asked = max(part.times for part in planned.flatten())
    if queries is not None:
        share = integer_at_least(queries, 1, "queries", "propose") / asked
        parts = [Repeated(part.event, ceil(share * part.times)) for part in planned.flatten()]
        planned = Composed(tuple(parts))
        margin = margin * share
    published = data_independent.epsilon(planned, delta)
    tried: dict[float, tuple[float, list[float], list[int]]] = {}

    def epsilon_at(log_offset: float) -> float:
        order = 1 + exp(log_offset)
        try:
            caps = margin * reach_of(proxy, order, _LEVELS).reveal()
        except UnsupportedEventError:
            if log_offset <= 0:  # a refusal is about the event and not the order
                raise
            return _NONE  # so large an order is not followed for this noise
        epsilon, chances = best_chances(caps, order, delta, refusal)
        tried[order] = (epsilon, caps.tolist(), chances)
        return min(epsilon, _NONE)

    coarse: list[float] = np.linspace(log(_ORDERS[0]), log(_ORDERS[1]), 7).tolist()
    best = int(np.argmin([epsilon_at(log_offset) for log_offset in coarse]))
    lower = coarse[max(best - 1, 0)]
    upper = coarse[min(best + 1, len(coarse) - 1)]
    # Seven steps find the least ε within 0.1 %.
    scipy.optimize.minimize_scalar(
        epsilon_at,
        bounds=(lower, upper),
        method="bounded",
        options={"maxiter": 7},
    )
    order, (epsilon, caps, chances) = min(tried.items(), key=lambda item: item[1][0])
    if epsilon >= published.epsilon:
        raise NothingToGainError(
            f"Votes like these support no epsilon below the data-independent one, {published}. Publish that one."
        )
    kept = tuple(caps[: len(chances) - 1])
    return Proposal(
        delta=delta, order=order, caps=kept, chances=tuple(chances), unit=published.unit
    )
