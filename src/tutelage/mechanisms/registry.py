"""Every mechanism by name, with its settings and the instances that audits and tests use.

The command line, run configurations, the audits and the tests take their lists from here. To add a
mechanism, add an entry; `tests/conventions/test_registry.py` says what else it needs. The planner has formulas of its
own for those that it recommends.
"""

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

from tutelage.mechanisms.base import Mechanism
from tutelage.mechanisms.confident import ConfidentGNMax, InteractiveGNMax
from tutelage.mechanisms.noisy_argmax import (
    CappedGNMax,
    ExponentialMax,
    GNMax,
    LNMax,
    PermuteAndFlip,
)
from tutelage.mechanisms.noisy_sum import NoisySum

Kind = TypeVar("Kind")


class Setting(NamedTuple):
    """A setting of a mechanism; the class checks its range."""

    name: str  # on the command line and in configurations
    parameter: str  # of the class
    help: str


class RegistryEntry(NamedTuple, Generic[Kind]):
    """A mechanism as users choose it."""

    name: str  # on the command line and in configurations
    kind: type[Kind]
    settings: tuple[Setting, ...]
    line: str  # when to use it; the page that describes it repeats this line
    sharp: tuple[Any, ...]  # arguments with so little noise that one vote shows
    # Arguments whose noise and threshold are a few votes, if `sharp` has larger ones.
    few_votes: tuple[Any, ...] = ()

    def make_sharp(self) -> Kind:
        """Return the instance with so little noise that one vote shows."""
        return self.kind(*self.sharp)

    def make_of_few_votes(self) -> Kind:
        """Return the instance whose noise and threshold are a few votes."""
        return self.kind(*(self.few_votes or self.sharp))

    def settings_of(self, mechanism: Kind) -> dict[str, Any]:
        """Return the settings of an instance by the names that users know."""
        return {setting.name: getattr(mechanism, setting.parameter) for setting in self.settings}

    def type_of(self, setting: Setting) -> Any:
        """Return the type of a setting."""
        return get_type_hints(self.kind)[setting.parameter]


_SCALE = Setting("scale", "scale", "scale of the noise, in votes (1/gamma)")
_SIGMA = Setting("sigma", "sigma", "sigma of the noise on the vote counts, in votes")
_CHECKED = (
    Setting("threshold", "threshold", "votes that the winning class must reach under noise"),
    Setting("sigma_threshold", "sigma_threshold", "sigma of the noise of the check, in votes"),
    _SIGMA._replace(parameter="sigma_vote"),
)
_CONFIDENCE = Setting(
    "confidence", "confidence", "student probability above which an unopposed prediction is kept"
)

CENTRAL: Mapping[str, RegistryEntry[Mechanism]] = {
    entry.name: entry
    for entry in (
        RegistryEntry[Mechanism](
            "lnmax", LNMax, (_SCALE,), "a pure ε per answer, as in PATE 2017", (1.0,)
        ),
        RegistryEntry[Mechanism]("gnmax", GNMax, (_SIGMA,), "many answers; the default", (2.0,)),
        RegistryEntry[Mechanism](
            "capped",
            CappedGNMax,
            (_SIGMA, Setting("cap", "cap", "most votes of one teacher, on all queries together")),
            "every teacher votes on few of many queries; teachers may be single rows",
            sharp=(2.0, 1),
        ),
        RegistryEntry[Mechanism](
            "confident",
            ConfidentGNMax,
            _CHECKED,
            "only answers that the teachers agree on",
            sharp=(20.0, 2.0, 2.0),
            few_votes=(2.0, 2.0, 2.0),
        ),
        RegistryEntry[Mechanism](
            "interactive",
            InteractiveGNMax,
            (*_CHECKED, _CONFIDENCE),
            "a student exists: ask where the teachers may contradict it",
            sharp=(5.0, 2.0, 2.0, 0.6),
            few_votes=(2.0, 2.0, 2.0, 0.6),
        ),
        RegistryEntry[Mechanism](
            "exponential",
            ExponentialMax,
            (_SCALE,),
            "a pure ε per answer, and many answers compose better",
            (1.0,),
        ),
        RegistryEntry[Mechanism](
            "permute-and-flip", PermuteAndFlip, (_SCALE,), "a few answers under a pure ε", (1.0,)
        ),
    )
}
SUMS: Mapping[str, RegistryEntry[NoisySum]] = {
    "noisy-sum": RegistryEntry[NoisySum](
        "noisy-sum",
        NoisySum,
        (
            Setting(
                "noise_multiplier",
                "noise_multiplier",
                "sigma of the noise, in lengths of the longest ballot",
            ),
        ),
        "a vector of each person",
        (1.5,),
    )
}


def entry_of(mechanism: Mechanism) -> RegistryEntry[Mechanism] | None:
    """Return the entry of a mechanism's class; None for a mechanism of the user's own, even a subclass of one here."""
    for entry in CENTRAL.values():
        if entry.kind is type(mechanism):
            return entry
    return None
