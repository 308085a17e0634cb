"""The three forms of a card say one thing of the budget."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from test_card import card, full_card
from tutelage import Ledger, PATEClassifier, SimulationNoise
from tutelage.events import NoisyBallot, NoisySumGaussian, Repeated, SummedNoise
from tutelage.mechanisms import ConfidentGNMax
from tutelage.privacy import ONE_TEACHER
from tutelage.reporting import Batch, PrivacyCard
from tutelage.reporting.lints import lint
from tutelage.teachers import ClassMeans, NearestQueries

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of students of few rows, and of fits that are repeated


def adds_up(made: PrivacyCard, markdown: str | None = None, page: str | None = None) -> bool:
    """All of the budget is spent, or what is not spent is printed; bars add up to what the sentences say.

    The pages of a card may be replaced by others.
    """
    values = json.loads(json.dumps(made.as_dict()))
    text, seen = markdown or made.as_markdown(), page or made.as_html()
    drawn = re.findall(r"<tr><th scope=\"row\">([^<]*)</th><td>(?:<i [^>]*></i>)+<b>([^<]*)</b></td></tr>", seen)
    spends = r"; (?:(all of it)|(\S+)) is spent|\. .*? used (\S+) of"  # the latter of two ε that differ
    first = re.search(rf"\| Budget \| ε = (\S+) at [^|]* for all releases(?:{spends})", text)
    if first is None:
        return False
    budget = float(first[1])
    spent = budget if first[2] else float(first[3] or first[4])
    whole = re.search(
        r"\| Guarantee of the whole budget \| .*?(?:(all of it)|(\d\S*))(?: is|(?: of \S+ is counted as)) spent", text
    )
    agree = whole is None or (budget if whole[1] else float(whole[2])) == spent
    agree &= budget >= values["budget"]["budget"] and spent >= min(budget, values["budget"]["spent"]) - 1e-12
    if values["batches"]:
        rest = sum(float(value) for name, value in drawn if name == "not spent")
        bars = [float(value) for name, value in drawn if " · " in name]
        agree &= abs(spent + rest - budget) < 1e-9 and abs(sum(bars) - spent) < 1e-9
        agree &= (first[2] is not None) == (rest == 0)
        of_batches = sum(batch["checks"] + batch["answers"] for batch in values["batches"])
        agree &= abs(of_batches - values["budget"]["spent"]) < 1e-9
    return agree and f"ε = {first[1]}" in re.sub(r"<[^>]+>", "", seen)


# Cards of every method


_X = np.random.default_rng(0).uniform(size=(500, 4))
_Y = (_X[:, 0] > 0.5).astype(np.int64)


def fit(**settings: Any) -> PATEClassifier:
    model = PATEClassifier(**{"epsilon": 2.0, "classes": (0, 1), "random_state": 0, **settings})
    return model.fit(_X[:300], _Y[:300], X_public=_X[300:420])


fitted = cache(fit)


@cache
def of(model: PATEClassifier) -> PrivacyCard:
    return model.card(_X[420:], _Y[420:])


def continued(folder: Any) -> PrivacyCard:
    ledger = Ledger.create(folder / "rows.ledger", epsilon=3.0, delta=1e-5, unit=fitted().epsilon_.unit)
    for rows in (slice(300, 360), slice(360, 420)):
        model = PATEClassifier(epsilon=1.0, classes=(0, 1), random_state=0, ledger=ledger)
        model.fit(_X[:300], _Y[:300], X_public=_X[rows])
    return of(model)


OF_SHARES = SummedNoise(NoisySumGaussian(60.0, 100, 20, ONE_TEACHER), 3)
_TRAINED = {"teacher": ClassMeans(), "n_teachers": 60, "n_queries": 40}
CARDS: dict[str, Callable[[Any], PrivacyCard]] = {
    "vector ballots": lambda _: of(fitted()),
    "capped votes": lambda _: of(fitted(teacher=NearestQueries(5))),
    "trained teachers": lambda _: of(fitted(**_TRAINED)),
    "confident": lambda _: of(fitted(**_TRAINED | {"epsilon": None, "mechanism": ConfidentGNMax(40, 20, 15)})),
    "several rounds": lambda _: of(fitted(**_TRAINED | {"rounds": 2})),
    "simulated": lambda _: of(fitted(noise=SimulationNoise(0))),
    "continued ledger": continued,
    "federated": lambda _: card(event=OF_SHARES, mechanism="NoisySum(6)", findings=lint(shares=3), batches=()),
    "local": lambda _: card(event=Repeated(NoisyBallot(3.0, 5, ONE_TEACHER), 500), mechanism="LocalGaussian(sigma=3)"),
    "published epsilon": lambda _: full_card(batches=()),
}


_REST = {"trained teachers", "confident", "several rounds"}


@pytest.mark.parametrize("method", [pytest.param(one, marks=[pytest.mark.rest] * (one in _REST)) for one in CARDS])
def test_the_budget_on_a_card_adds_up_in_words_and_bars(method, tmp_path):
    assert adds_up(CARDS[method](tmp_path))


def test_a_budget_that_does_not_add_up_is_found():
    made = of(fitted())
    planted = '<tr><th scope="row">2026 · 1 noisy sum</th><td><i ></i><b>0.1</b></td></tr>'
    assert adds_up(made)
    assert not adds_up(made, markdown=made.as_markdown().replace("all of it is spent", "1.999 is spent"))
    assert not adds_up(made, page=made.as_html().replace("</caption>", planted))
    assert not adds_up(replace(made, batches=(Batch("2026-01-01", 0, 0.0, 0.5, 1), *made.batches)))
