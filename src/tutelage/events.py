"""The vocabulary of releases: what a mechanism did, exactly enough to account for it.

Mechanisms emit events, accounting consumes them; neither imports the other. Events hold public parameters only.
They are meant to be stored, so they evolve by three rules: a class or field is never removed, never changes its
meaning, and a new field has a default under which old records stay true.

Counts are votes of teachers; "neighbor" means what `tutelage.privacy` says: one ballot moves. These fields mean
the same in every event that has them:

- `scale`, `sigma`: parameter of each noise variable, in votes; for σ ≥ 1 its standard deviation to six digits;
- `threshold`: T, in votes;
- `classes`: number of counts m, at least 2;
- `norm_squared`, `dimension`, `cap`: bounds that every ballot keeps to, checked on the ballots themselves;
- `unit`: what moves one ballot, or the number that is released;
- `simulated`: True if the noise came from a seeded generator, which gives no protection.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import inf, nextafter, sqrt
from typing import Any, NamedTuple, final, get_args

import msgspec

from tutelage._internal.records import Entries, frozen, settle
from tutelage._internal.validation import (
    integer_at_least,
    local_epsilon,
    noise_scale,
    number_of_votes,
    probability,
    require_instance,
)
from tutelage.exceptions import (
    InvalidDataError,
    InvalidParameterError,
    UnsupportedEventError,
    quote,
)
from tutelage.privacy import PrivacyUnit

# The least σ of a share: from it on, a sum of discrete Gaussians is close to one. See docs/proofs/summed_noise.md.
_LEAST_SHARE = 2.0
_MOST_SHARES = 10**6
_MOST_BITS = {"norm_squared": 100, "dimension": 50, "cap": 50}  # counts are at most 2⁵⁰
CERTAIN = 2**60  # the chance of what always happens, in the units of `PublicationTest`
TIER_STEPS = 2**10  # of a whole ballot, in which the ballots of people in tiers are shortened
SUMS_ALONE = (
    "People can ask for a smaller ε only if nothing but noisy sums of their ballots is released. Leave out `tiers`, "
    "or use NoisyMoments, Additive or AdditiveMean."
)
# Names of tiers, sorted, and of how many steps of a whole ballot the ballots of their people are.
TierSteps = tuple[tuple[str, int], ...]


def _bound_of_ballot(value: object, name: str, owner: str) -> int:
    whole = integer_at_least(value, 1, name, owner)
    bits = _MOST_BITS[name]
    if whole > 2**bits:
        raise InvalidParameterError(
            f"{owner}.{name}", f"be an integer up to 2**{bits}", "a larger one"
        )
    return whole


def _truth_value(value: object, name: str, owner: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidParameterError(f"{owner}.{name}", "be True or False", quote(value))
    return value


def _steps_of_tiers(value: Any, name: str, owner: str) -> TierSteps:
    tiers = tuple((tier, steps) for tier, steps in value)
    names = [tier for tier, _ in tiers]
    are_steps = all(type(steps) is int and 0 < steps <= TIER_STEPS for _, steps in tiers)
    are_names = all(type(tier) is str and tier for tier in names)
    if not are_steps or not are_names or names != sorted(set(names)):
        raise InvalidParameterError(
            f"{owner}.{name}",
            f"be pairs of a name and a whole number from 1 to {TIER_STEPS}, each name once and in order",
        )
    return tiers


# How each public parameter is checked, by its name: value, name and class to the value that is kept.
_RULES: dict[str, Callable[[object, str, str], object]] = {
    "scale": noise_scale,
    "sigma": noise_scale,
    "threshold": number_of_votes,
    "epsilon": lambda value, _, owner: local_epsilon(value, owner),
    "classes": lambda value, name, owner: integer_at_least(value, 2, name, owner),
    "delta": probability,
    "norm_squared": _bound_of_ballot,
    "dimension": _bound_of_ballot,
    "cap": _bound_of_ballot,
    "nonnegative": _truth_value,
    "tiers": _steps_of_tiers,
}


@frozen
class Event:
    """Base of all events."""

    @property
    def is_simulated(self) -> bool:
        """Whether any part was made with seeded noise."""
        return any(part.event.simulated for part in self.flatten())

    def as_dict(self) -> Entries:
        """Return the event as plain JSON-ready values, with its class name under ``"event"``.

        A field that a later version adds is left out where it is as it is by default.
        """
        # The one default there was when events were first stored.
        stored = settings_of(self).keys() | {"simulated"}
        entries: Entries = {"event": _stored_name(type(self))}
        for name, value in msgspec.to_builtins(self).items():
            if name in stored:
                entries[name] = value
        return entries

    def flatten(self, times: int = 1) -> "list[Releases]":
        """Return the single releases of which the event is made, each with how often; the event happened `times` times.

        A part of unknown kind raises `UnsupportedEventError`.
        """
        if not isinstance(self, Single):
            raise UnsupportedEventError(
                f"No cost is known for the event {type(self).__name__}. Use the events of `tutelage.events`."
            )
        return [Releases(self, times)]

    def without_shares(self) -> "Event":
        """Return the event as if its noise were drawn whole: what is inside a `SummedNoise`, or the event itself."""
        return self


@frozen
class _Checked(Event):
    """One release; its parameters are checked by their names."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name in _RULES:
                settle(self, field.name, _RULES[field.name])


@frozen
class _OfScale(_Checked):
    scale: float
    classes: int
    unit: PrivacyUnit
    simulated: bool = False


@frozen
class _OfSigma(_Checked):
    sigma: float
    classes: int
    unit: PrivacyUnit
    simulated: bool = False


@frozen
class _OfThreshold(_Checked):
    threshold: float
    sigma: float
    classes: int
    unit: PrivacyUnit
    simulated: bool = False


@final
@frozen
class NoisyArgmaxLaplace(_OfScale):
    """argmax_j (n_j + Z_j), Z_j independent, P(Z = k) ∝ exp(−|k|/scale) on the integers; lowest index wins ties."""


@final
@frozen
class NoisyArgmaxGaussian(_OfSigma):
    """argmax_j (n_j + Z_j), Z_j independent, P(Z = k) ∝ exp(−k²/2σ²) on the integers; lowest index wins ties."""


@final
@frozen
class ExponentialArgmax(_OfScale):
    """The exponential mechanism: class j with probability ∝ exp(n_j/scale)."""


@final
@frozen
class PermuteAndFlipArgmax(_OfScale):
    """Permute-and-flip: argmax_j (n_j + E_j), E_j independent and exponential with mean `scale`."""


@final
@frozen
class ConfidenceCheck(_OfThreshold):
    """Whether max_j n_j + Z ≥ threshold, P(Z = k) ∝ exp(−k²/2σ²): the first step of Confident-GNMax."""


@final
@frozen
class InteractiveCheck(_OfThreshold):
    """Whether max_j (n_j − o_j) + Z ≥ threshold, o_j public, Z as in `ConfidenceCheck`: Interactive-GNMax, first step.

    The offsets o_j are the number of teachers times the student's predicted probability of class j, one per query and
    class; the accounting takes them beside the votes.
    """


@final
@frozen
class RandomizedResponse(_Checked):
    """One entity's vote, kept with probability e^ε/(e^ε + m − 1) at most, or else any other class, all equally likely.

    `unit` is what changes the vote; whether there is a vote must not depend on it. ε is the pure loss of one response.
    """

    epsilon: float
    classes: int
    unit: PrivacyUnit
    simulated: bool = False


@final
@frozen
class TruncatedGeometricResponse(_OfScale):
    """One entity's vote as a number 1, …, m, plus Z, clamped to a range around them; P(Z = k) ∝ exp(−|k|/scale).

    `unit` is as in `RandomizedResponse`. The scale is in classes; α of the truncated geometric mechanism is
    e^(−1/scale), and the pure loss is (m − 1)/scale.
    """


@final
@frozen
class NoisyBallot(_OfSigma):
    """One entity's vote as a vector of one 1 and m − 1 zeros, plus independent Z_j, P(Z_j = k) ∝ exp(−k²/2σ²).

    `unit` is as in `RandomizedResponse`.
    """


@final
@frozen
class NoisySumGaussian(_Checked):
    """Σ_i b_i + Z, where teacher i casts one integer vector b_i and P(Z_j = k) ∝ exp(−k²/2σ²), Z_j independent.

    σ is in the unit of the ballots' entries. Every ballot has `dimension` entries and Σ_j b_ij² ≤ `norm_squared`; zeros
    are an abstention. `unit` replaces, adds or removes one ballot. `nonnegative` says whether every b_ij ≥ 0.

    With `tiers`, every ballot is of a teacher of one of them, and one of a tier with k steps has Σ_j b_ij² ≤
    `norm_squared` · (k/2¹⁰)². See `event_of_tier`.
    """

    sigma: float
    norm_squared: int
    dimension: int
    unit: PrivacyUnit
    simulated: bool = False
    nonnegative: bool = False
    tiers: TierSteps = ()

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        if self.tiers and self.norm_squared % TIER_STEPS**2:
            raise InvalidParameterError(
                "NoisySumGaussian.norm_squared",
                f"be a multiple of {TIER_STEPS}**2 if there are $tiers",
            )


@final
@frozen
class CappedArgmaxGaussian(_Checked):
    """All answers of a campaign, each as of `NoisyArgmaxGaussian`, to which each teacher gives at most `cap` votes.

    There may be any number of queries, each chosen in view of earlier answers. A teacher votes on `cap` of all of them
    at most and abstains on the others; its votes depend on its own data, its seed and earlier answers only. One event
    stands for the whole campaign. `unit` replaces, adds or removes one teacher's votes.
    """

    sigma: float
    cap: int
    classes: int
    unit: PrivacyUnit
    simulated: bool = False


@final
@frozen
class PublicationTest(_Checked):
    """Whether an ε proposed in advance may be published: passed with a chance that falls with the shortfall.

    The shortfall is a whole number that one unit changes by at most one (docs/proofs/release.md). `chances` are those
    to pass at shortfall 0, 1, …, in units of 2⁻⁶⁰, not rising; the last holds from there on. `delta` is that of the
    claim that is tested; those of all publications through one ledger add up.
    """

    chances: tuple[int, ...]
    delta: float
    unit: PrivacyUnit
    simulated: bool = False

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        chances = tuple(self.chances)
        are_chances = all(type(chance) is int and 0 < chance < CERTAIN for chance in chances)
        if len(chances) < 2 or not are_chances:
            raise InvalidParameterError(
                "PublicationTest.chances", "be two or more whole numbers above 0 and below 2**60"
            )
        if any(later > earlier for earlier, later in pairwise(chances)):
            raise InvalidParameterError(
                "PublicationTest.chances", "not increase from one entry to the next"
            )
        object.__setattr__(self, "chances", chances)


Check = ConfidenceCheck | InteractiveCheck
# Events whose noise several owners may draw.
_Summable = NoisyArgmaxGaussian | Check | NoisySumGaussian


@final
@frozen
class SummedNoise(Event):
    """The same event, each of its noise variables the sum of independent shares of several owners.

    No owner knows the sum, so the noise of those who keep theirs secret protects. Noise of further owners on top of it
    only hides more: it is post-processing. σ of `event` is that of the whole noise of the owners who are counted:
    `shares` are as many as are certain to add a share and to keep it secret. Each of these h owners draws discrete
    Gaussians with parameter σ/√h, at least 2: the sum of narrower ones would differ from one Gaussian.
    """

    event: _Summable
    shares: int

    def __post_init__(self) -> None:
        require_instance(
            "SummedNoise.event",
            "be a NoisyArgmaxGaussian, ConfidenceCheck, InteractiveCheck or NoisySumGaussian",
            self.event,
            _Summable,
        )
        settle(self, "shares", integer_at_least, 1)
        if self.shares > _MOST_SHARES:
            raise InvalidParameterError("SummedNoise.shares", f"be at most {_MOST_SHARES}")
        least = _LEAST_SHARE * sqrt(self.shares)
        if self.shares > 1 and self.event.sigma < least * (1 - 1e-12):
            raise InvalidParameterError(
                "SummedNoise.event",
                f"have a sigma of at least {least:.6g}, which is {_LEAST_SHARE:g} times the square root of $shares",
                f"{self.event.sigma:g}",
                "Raise sigma, or lower $shares.",
            )

    @property
    def sigma_of_share(self) -> float:
        """Parameter of one share's noise: the least double whose square is at least σ²/shares."""
        whole = Fraction(self.event.sigma) ** 2
        share = nextafter(self.event.sigma / sqrt(self.shares), 0)
        while Fraction(share) ** 2 * self.shares < whole:
            share = nextafter(share, inf)
        return share

    @property
    def variables(self) -> int:
        """Number of noise variables: one per class of an answer, one per number of a sum, one in all of a check."""
        match self.event:
            case NoisyArgmaxGaussian(classes=classes):
                return classes
            case NoisySumGaussian(dimension=dimension):
                return dimension
            case _:
                return 1

    @property
    def unit(self) -> PrivacyUnit:
        """Unit whose change moves one ballot."""
        return self.event.unit

    @property
    def simulated(self) -> bool:
        """Whether the noise came from a seeded generator."""
        return self.event.simulated

    def as_dict(self) -> Entries:
        """Return the event as plain JSON-ready values, with its class name under ``"event"``."""
        return {"event": "SummedNoise", "shares": self.shares, "of": self.event.as_dict()}

    def without_shares(self) -> Event:
        """Return the event as if its noise were drawn whole."""
        return self.event


@final
@frozen
class Repeated(Event):
    """The same event `count` times, each on its own query, possibly chosen in view of earlier answers.

    The count itself must be fixed before the first answer, or be a limit that was.
    """

    event: Event
    count: int

    def __post_init__(self) -> None:
        settle(self, "count", integer_at_least, 0)

    def flatten(self, times: int = 1) -> "list[Releases]":
        """Return the single releases of which the event is made, each with how often it happened."""
        return self.event.flatten(times * self.count)

    def as_dict(self) -> Entries:
        """Return the event as plain JSON-ready values, with its class name under ``"event"``."""
        return {"event": "Repeated", "count": self.count, "of": self.event.as_dict()}


@final
@frozen
class Composed(Event):
    """Several events on the same private data, each possibly chosen in view of the earlier answers."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        if not self.events:
            raise InvalidParameterError("Composed.events", "contain at least one event", "none")

    def flatten(self, times: int = 1) -> "list[Releases]":
        """Return the single releases that the event is made of, each with how often it happened."""
        return [releases for event in self.events for releases in event.flatten(times)]

    def as_dict(self) -> Entries:
        """Return the event as plain JSON-ready values, with its class name under ``"event"``."""
        return {"event": "Composed", "of": [event.as_dict() for event in self.events]}


Single = (
    NoisyArgmaxLaplace
    | NoisyArgmaxGaussian
    | ExponentialArgmax
    | PermuteAndFlipArgmax
    | ConfidenceCheck
    | InteractiveCheck
    | RandomizedResponse
    | TruncatedGeometricResponse
    | NoisyBallot
    | NoisySumGaussian
    | CappedArgmaxGaussian
    | PublicationTest
    | SummedNoise
)


def _stored_name(kind: type[Event]) -> str:
    """Return the name of an event in ledgers and cards: that of its class when it was first stored."""
    if kind is PermuteAndFlipArgmax:
        return "PermuteAndFlip"
    return kind.__name__


_BY_NAME: dict[str, type[Event]] = {_stored_name(kind): kind for kind in get_args(Single)}


class Releases(NamedTuple):
    """One kind of single release, and how often it happened."""

    event: Single
    times: int


def count_releases(events: Iterable[Event]) -> Counter[Event]:
    """Return how often each kind of single release happened in several events."""
    times = Counter[Event]()
    for event in events:
        for part in event.flatten():
            times[part.event] += part.times
    return times


def of_queries(event: Event, queries: int) -> Repeated:
    """Return the largest event of `queries` queries, each at most `event`; a campaign is always one event."""
    if isinstance(event, CappedArgmaxGaussian):
        return Repeated(event, min(queries, 1))
    return Repeated(event, queries)


def in_tiers(event: Event, tiers: TierSteps) -> Event:
    """Return the event of the same release in which the ballots of people in tiers are shortened.

    Sums are then in steps, of which a whole ballot has 2¹⁰, with the noise that this takes: the cost stays what it is.
    """
    match event:
        case _ if not tiers:
            return event
        case Repeated(event=inner, count=count):
            return Repeated(in_tiers(inner, tiers), count)
        case Composed(events=parts):
            return Composed(tuple(in_tiers(part, tiers) for part in parts))
        case NoisySumGaussian(sigma=sigma, norm_squared=norm_squared):
            return replace(
                event,
                sigma=sigma * TIER_STEPS,
                norm_squared=norm_squared * TIER_STEPS**2,
                tiers=tiers,
            )
        case _:
            raise UnsupportedEventError(SUMS_ALONE)


def tiers_of(event: Event) -> TierSteps:
    """Return the tiers of all releases of which the event is made; refuse releases that differ in these."""
    found = {getattr(part.event, "tiers", ()) for part in event.flatten()}
    if len(found) > 1:
        raise UnsupportedEventError("All releases of an event must have the same tiers.")
    return found.pop() if found else ()


def event_of_tier(event: Event, name: str) -> Event:
    """Return the event as it is for the people of one tier: all of their ballots are shortened."""
    parts = list[Event]()
    for part, times in event.flatten():
        if isinstance(part, NoisySumGaussian) and name in dict(part.tiers):
            norm_squared = part.norm_squared // TIER_STEPS**2 * dict(part.tiers)[name] ** 2
            part = replace(part, norm_squared=norm_squared, tiers=())
        parts.append(Repeated(part, times))
    return Composed(tuple(parts))


def event_of(times: Counter[Event]) -> Event:
    """Return kinds of events, each as often as it happened, as one event."""
    parts = [Repeated(part, count) for part, count in times.items()]
    return Composed(tuple(parts))


def settings_of(record: Any) -> Entries:
    """Return the fields of a frozen record that are in its `repr`, without those that are as they are by default.

    So the content of a file or a key stays the same when a later version adds a field.
    """
    settings = Entries()
    for item in fields(record):
        value = getattr(record, item.name)
        is_default = type(value) is type(item.default) and value == item.default
        if item.repr and not is_default:
            settings[item.name] = value
    return settings


def event_from_dict(record: Entries) -> Event:
    """Return the event that `Event.as_dict` wrote; one that this version does not know raises UnsupportedEventError."""
    return _event_from_text(json.dumps(record, default=str))


@lru_cache(maxsize=1024)  # the entries of a ledger have few kinds of events
def _event_from_text(text: str) -> Event:
    record = json.loads(text)
    try:
        name = record["event"]
        del record["event"]
        match name:
            case "SummedNoise":
                return SummedNoise(event_from_dict(record["of"]), record["shares"])  # type: ignore[arg-type]
            case "Repeated":
                return Repeated(event_from_dict(record["of"]), record["count"])
            case "Composed":
                return Composed(tuple(event_from_dict(part) for part in record["of"]))
            case _:
                pass
        record["unit"] = PrivacyUnit.from_dict(record["unit"])
        event = _BY_NAME[name](**record)
        hash(event)  # refused where a setting is a list
        return event
    except InvalidDataError as error:
        raise UnsupportedEventError(f"A stored event cannot be read: {error}") from None
    except (KeyError, TypeError, ValueError):
        raise UnsupportedEventError(
            "A stored event has a type that this version of tutelage does not know."
        ) from None
