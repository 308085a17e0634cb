"""The three forms of a card say one thing: of counts, of the budget, of what leaves and of the noise."""

import html
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

COUNTS, BUDGET, METHOD, NOISE, COMMAND = (
    "counts of queries differ", "spent and left do not add up to the budget", "words of two methods",
    "noise of two kinds", "a command on the first page",
)  # fmt: skip
_NUMBER = r"(\d[\d,]*(?:\.\d+)?)"


def contradictions(made: PrivacyCard, markdown: str | None = None, page: str | None = None) -> list[str]:
    """Return where a card says two things; its pages may be replaced by others."""
    values = json.loads(json.dumps(made.as_dict()))
    text, seen = markdown or made.as_markdown(), page or made.as_html()
    drawn = re.findall(r"<tr><th scope=\"row\">([^<]*)</th><td>(?:<i [^>]*></i>)+<b>([^<]*)</b></td></tr>", seen)
    words = html.unescape(" ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", seen, flags=re.DOTALL).split()))
    return [
        fault
        for fault, holds in (
            (COUNTS, _counts_agree(values, text, drawn)),
            (BUDGET, _budget_adds_up(values, text, words, drawn)),
            (METHOD, _method_agrees(values, text) and _method_agrees(values, words)),
            (NOISE, _noise_agrees(values, text) and _noise_agrees(values, words)),
            (COMMAND, "--" not in text.split("## Annex")[0].replace("---", "")),
        )
        if not holds
    ]


def _numbers(pattern: str, text: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(pattern, text)]


def _counts_agree(values: dict[str, Any], text: str, drawn: list[tuple[str, str]]) -> bool:
    """Every count of queries is that of the release, of a batch, or of another number in the figure of costs."""
    told = _numbers(rf"(?<!· )(?<![\d,]){_NUMBER} quer(?:y|ies)\b", text)  # a bar names its batch behind a dot
    in_bars = _numbers(rf"{_NUMBER} quer", "\n".join(name for name, _ in drawn))
    in_bars += _numbers(rf"· {_NUMBER} quer", text)
    batches = [batch["queries"] for batch in values["batches"]]
    if "noisy sum" in text:
        named = set(_numbers(rf"(?:labels of at most|by the student \|) {_NUMBER}", text))
        return not told and named == {values["queries"]} and set(in_bars) <= set(batches) - {0}
    known = {values["queries"], *(point["queries"] for point in values["frontier"])}
    labeled = re.findall(rf"\| {_NUMBER} queries, {_NUMBER} labeled", text)
    agree = [(f"{values['queries']:,}", f"{values['answered']:,}")] == labeled or values["answered"] is None
    return set(told) <= known and set(in_bars) <= {*known, *batches} and agree


def _budget_adds_up(values: dict[str, Any], text: str, words: str, drawn: list[tuple[str, str]]) -> bool:
    """All of the budget is spent, or what is not spent is printed; bars add up to what the sentences say."""
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
    return agree and f"ε = {first[1]}" in words


def _method_agrees(values: dict[str, Any], text: str) -> bool:
    """Sums are of ballots, and no teacher votes; votes are of teachers or people, and no sum leaves."""
    leaves = re.search(r"Released\.(.*?)Guarantee\.", text, re.DOTALL)
    assert leaves is not None
    if values["mechanism"].startswith("NoisySum"):
        wrong = re.search(r"\bTeachers\b|\bQueries\b", text)
        return wrong is None and re.search("noisy sums? of ballots", leaves[1]) is not None and "Ballots" in text
    of_labels = "noisy sum" not in leaves[1] and "publishes labels of at most" in leaves[1]
    return of_labels and ("Teachers" in text) == (values["teachers"] is not None)


def _noise_agrees(values: dict[str, Any], text: str) -> bool:
    """Exact discrete noise is not called continuous, and simulated noise guarantees nothing."""
    if values["noise"] == "simulated":
        return "NOT PRIVATE" in text and not re.search(r"at most \d+ of 100 cases|differential privacy \|", text)
    return "NOT PRIVATE" not in text and "imulated" not in text and "continuous" not in text


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
def test_a_card_contradicts_itself_nowhere(method, tmp_path):
    assert contradictions(CARDS[method](tmp_path)) == []


@pytest.mark.parametrize(("form", "said", "planted", "fault"), [
    ("markdown", "| Public rows labeled by the student | 120 |", "| Queries | 1 query |", COUNTS),
    ("markdown", "all of it is spent", "1.999 is spent", BUDGET),
    ("markdown", "| Ballots in each sum |", "| Teachers |", METHOD),
    ("markdown", "noisy sums of ballots", "labels", METHOD),
    ("markdown", "of discrete Gaussian noise", "of rounded continuous noise", NOISE),
    ("markdown", "Objections", 'Signed by: add it with --state signed_by="…". Objections', COMMAND),
    ("page", " · 1 noisy sum<", " · 1 query<", COUNTS),
    ("page", "Ballots", "Teachers", METHOD),
    ("page", "discrete Gaussian noise", "continuous noise", NOISE),
    ("page", "</caption>", '<tr><th scope="row">2026 · 1 noisy sum</th><td><i ></i><b>0.1</b></td></tr>', BUDGET),
])  # fmt: skip
def test_a_contradiction_that_is_planted_in_the_words_or_the_page_is_found(form, said, planted, fault):
    made = of(fitted())
    text = made.as_markdown() if form == "markdown" else made.as_html()
    assert said in text
    assert fault in contradictions(made, **{form: text.replace(said, planted)})


def test_batches_that_do_not_add_up_to_the_budget_are_found():
    made = of(fitted())
    assert contradictions(replace(made, batches=(Batch("2026-01-01", 0, 0.0, 0.5, 1), *made.batches))) == [BUDGET]
