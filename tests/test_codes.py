"""What files and keys hold are codes: rewording a sentence, or adding a field, changes nothing that is stored."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from conftest import GOLDEN
from test_card import put
from tutelage import boundary, events
from tutelage.ballots import VoteHistogram
from tutelage.events import Composed, NoisyArgmaxGaussian, Repeated, event_from_dict
from tutelage.exceptions import InvalidParameterError, TutelageError
from tutelage.labeling import LabelingSession
from tutelage.ledger import Ledger
from tutelage.mechanisms import (
    ConfidentGNMax,
    ExponentialMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Mechanism,
    PermuteAndFlip,
)
from tutelage.noise import SystemNoise
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.publishing import Proposal
from tutelage.reporting.card import _card_in

CARD = json.loads((GOLDEN / "format-1" / "card.json").read_text())
del CARD["file"], CARD["format"]
PATIENT = PrivacyUnit("patient", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)
ROWS = np.array([[1.5, 2.0], [0.0, -1.0]])
COUNTS = np.array([[90, 10], [45, 55]])
UNKNOWN = "galaxy"


def test_the_codes_never_change():
    assert {relation.name: relation.value for relation in NeighboringRelation} == {
        "CHANGE_ONE_ROW": "row",
        "ADD_REMOVE_OR_CHANGE_ONE_ENTITY": "entity",
        "ADD_REMOVE_OR_CHANGE_WITHIN_SILO": "silo",
        "CHANGE_ONE_BALLOT": "ballot",
    }


def with_unit(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "unit": {"name": "patient", "neighboring": UNKNOWN}}


READERS: dict[str, Callable[[], object]] = {
    "event": lambda: event_from_dict(with_unit(NoisyArgmaxGaussian(40.0, 3, PATIENT).as_dict())),
    "proposal": lambda: Proposal.from_json(json.dumps(with_unit(CARD["guarantee"]["proposal"]))),
    "card": lambda: _card_in(put(CARD, ("guarantee", "epsilon", "unit", "neighboring"), UNKNOWN)),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_an_unknown_code_is_refused_in_one_sentence(read):
    with pytest.raises(
        TutelageError, match="; if a later version wrote the file, upgrade tutelage"
    ) as caught:
        read()
    assert UNKNOWN not in str(caught.value)
    assert str(caught.value).count(". ") == 0


def session(mechanism, ledger: Ledger) -> LabelingSession:
    return LabelingSession(VoteHistogram(COUNTS, 100, PATIENT), mechanism, ledger, question="ill?")


def test_the_keys_of_mechanisms_never_change():
    mechanisms = (
        LNMax(20.0), GNMax(40.0), ExponentialMax(20.0), PermuteAndFlip(20.0), ConfidentGNMax(60, 20, 20),
        InteractiveGNMax(50, 20, 20, 0.9),
    )  # fmt: skip
    assert [mechanism.key() for mechanism in mechanisms] == [
        "lnmax:v1(scale=20.0)",
        "gnmax:v1(sigma=40.0)",
        "exponential:v1(scale=20.0)",
        "permute-and-flip:v1(scale=20.0)",
        "confident:v1(threshold=60.0,sigma_threshold=20.0,sigma_vote=20.0)",
        "interactive:v1(threshold=50.0,sigma_threshold=20.0,sigma_vote=20.0,confidence=0.9)",
    ]


@dataclass(frozen=True)
class Mine(Mechanism):
    """A mechanism of somebody else's, with one setting of any kind."""

    setting: Any
    later: float = math.inf

    def event_of_one(self, n_classes, unit, *, simulated):
        return NoisyArgmaxGaussian(40.0, n_classes, unit, simulated)

    def release(self, votes, noise, predictions=None):
        return GNMax(40.0).release(votes, noise)


def test_a_mechanism_without_a_version_is_remembered_by_all_that_its_repr_tells():
    settings = [1, 1.0, True, "1", (1, 0), (True, False), GNMax, LNMax]
    assert len({Mine(setting).key() for setting in settings}) == len(settings)
    # The default too: its author may change it.
    assert Mine(1).key() == "Mine(setting=1, later=inf)"


class Silent(Mine):
    __repr__ = object.__repr__


class Versioned(Mine):
    key_name: ClassVar[str] = "mine:v1"


@pytest.mark.parametrize(
    "mechanism", [Silent(40.0), *map(Versioned, (np.zeros(3), abs, "text", None))]
)
def test_settings_that_no_key_can_tell_are_refused(mechanism):
    with pytest.raises(
        InvalidParameterError, match=r"become part of the key|must show all settings"
    ):
        mechanism.key()


def test_a_versioned_mechanism_leaves_defaults_out():
    for setting in (np.float64(0.1), 0.1):
        assert Versioned(setting, later=math.inf).key() == "mine:v1(setting=0.1)"
    assert (
        len({Versioned(setting).key() for setting in (1, 1.0, True, GNMax(1.0), 0.1, 0.1 + 1e-16)})
        == 6
    )
    assert Versioned(1, later=1).key() != Versioned(1, later=True).key()


class Renamed(Mine):
    key_name: ClassVar[str] = "gnmax:v1"


class Overriding(Mine):
    def key(self):
        return GNMax(40.0).key()


@pytest.mark.parametrize("kind", [Renamed, Overriding])
def test_no_mechanism_answers_by_the_key_of_another(kind):
    ledger = Ledger.in_memory(epsilon=8.0, delta=1e-5, unit=PATIENT)
    with pytest.raises(
        InvalidParameterError, match="must have a class name and a key that no mechanism"
    ):
        session(kind(1), ledger)
    request: Any = session(GNMax(40.0), ledger)._request(ROWS, None)
    with pytest.raises(
        InvalidParameterError, match="must have a class name and a key that no mechanism"
    ):
        boundary.Boundary(ledger, SystemNoise()).release(replace(request, mechanism=kind(1)))
    # A name is not inherited.
    assert type("Another", (Renamed,), {})(1).key() == "Another(setting=1, later=inf)"


@dataclass(frozen=True)
class LaterEvent(events.Event):
    """`NoisyArgmaxGaussian` as a later version may have it."""

    sigma: float
    classes: int
    unit: PrivacyUnit
    simulated: bool = False
    clip: float = math.inf


LaterEvent.__name__ = "NoisyArgmaxGaussian"


def test_a_field_that_a_later_version_adds_to_an_event_changes_no_record(monkeypatch):
    today = NoisyArgmaxGaussian(40.0, 3, PATIENT).as_dict()
    monkeypatch.setitem(events._BY_NAME, "NoisyArgmaxGaussian", LaterEvent)
    later = LaterEvent(40.0, 3, PATIENT)
    assert event_from_dict(today) == later
    assert later.as_dict() == today
    clipped = LaterEvent(40.0, 3, PATIENT, clip=2.0)
    assert event_from_dict(clipped.as_dict()) == clipped != later
    whole = Composed((Repeated(later, 3),))
    assert event_from_dict(json.loads(json.dumps(whole.as_dict()))) == whole
