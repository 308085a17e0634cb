"""Drawings of tables of effects: their bands hold as often as they say, and pages show them as they are stored."""

import json
from typing import Any

import numpy as np
import pytest
from msgspec import structs

import test_additive
import test_regression
from test_card import Outline, full_card
from tutelage import SimulationNoise
from tutelage.exceptions import InvalidParameterError, NotPublishableError
from tutelage.methods.requests import Answer, run_steps
from tutelage.reporting import read_card
from tutelage.reporting.record import Curve
from tutelage.students import load_student

CURVES = (
    Curve(
        "age",
        "yes",
        True,
        ["17 to 20", "20 to 30", "30 to 90"],
        [-0.5, 0.25, 1.25],
        [0.125, 0.0625, 0.5],
    ),
    Curve("<script>ward", "yes", False, ["a&b", "<i>"], [0.75, -0.25], [0.0, 0.5]),
)
OF = {"classes": test_additive, "numbers": test_regression}


def students_of(whole: Any) -> Any:
    """Return what teaches a student of prepared people, by a seed or without noise."""
    prepared = whole.method.prepare(whole.public, whole.people)

    def student(seed: int, *, exact: bool = False) -> Any:
        source = SimulationNoise(seed)

        def answer(request: Any) -> Answer:
            sums = request.ballot.cast(prepared, request, np.arange(1))
            drawn = request.mechanism.release(sums, source)
            found = np.array(drawn.answers)
            return Answer(
                np.asarray(sums.totals).reshape(found.shape) if exact else found, drawn.event, 0.0
            )

        return run_steps(whole.method.steps(whole.public), answer, lambda one: one.make()).student

    return student


@pytest.mark.parametrize("kind", OF)
def test_bands_contain_the_effects_without_noise_about_as_often_as_they_say(kind):
    """95 of 100, a few less where the noise hides a whole column; and none so wide that it always does by far."""
    model: Any = OF[kind].of(epsilon=4.0)
    student = students_of(model.prepare(*OF[kind].made_up(3_000)))

    def numbers(of: Any, name: str) -> Any:
        kept = [one[name] for one in of.effects()[1:] if one["cells"] != "empty or unknown"]
        return np.array([list(one.values())[-1] for one in kept])

    truth, found = numbers(student(0, exact=True), "effects"), [student(seed) for seed in range(10)]
    off = np.array([np.abs(numbers(one, "effects") - truth) for one in found])
    bands = np.array([numbers(one, "noise") for one in found])
    assert 0.9 < np.mean(off <= bands) < 0.995
    assert np.median(bands) < 4 * np.median(off.std(axis=0) + off.mean(axis=0))


@pytest.mark.rest
def test_bands_of_pairs_mostly_contain_what_they_say_without_noise():
    """Fewer than 95 of 100: the noise moves the borders of cells, too."""
    model: Any = test_additive.of(columns=test_additive.XOR, epsilon=4.0)
    X, y = test_additive.crossed(25_000)
    student = students_of(model.prepare(X, y))
    rows = test_additive.XOR.transform(X).astype(np.int64)[:3_000]

    def of_pair(taught: Any) -> tuple[Any, Any]:
        (pair,) = (one for one in taught.pairs_ if one.columns == (0, 1))
        return pair.of(rows), pair.doubts[pair.places(rows)]

    truth, _ = of_pair(student(0, exact=True))
    found = [of_pair(student(seed)) for seed in range(4)]
    inside = [np.abs(effects - truth) <= 2 * doubts for effects, doubts in found]
    assert 0.75 < np.mean(inside) < 0.995


@pytest.mark.parametrize("kind", OF)
def test_a_student_and_its_card_keep_the_bands_and_draw_them(kind, tmp_path):
    model: Any = OF[kind].of(epsilon=3.0).fit(*OF[kind].made_up(1_000))
    table = model.student_.effects()
    json.dumps(table)
    output = model.student_.outputs[-1]
    assert all(0 <= line["noise"][output] < 10 for line in table[1:])
    folder = model.save(tmp_path / "out")
    stored: Any = load_student(folder)[-1]
    assert stored.effects() == table
    curves = stored.curves()
    (of_work,) = (one for one in curves if one.column == "work")
    line = next(one for one in table if (one["column"], one["cells"]) == ("work", of_work.cells[0]))
    drawn = (line["effects"][output], line["noise"][output])
    assert (of_work.effects[0], of_work.noise[0]) == pytest.approx(drawn, rel=1e-3)
    again = read_card(folder / "card.json")
    assert again.student.curves == tuple(curves)
    assert again.as_html() == (folder / "card.html").read_text()
    page = Outline(model.student_._repr_html_())
    assert (len(page.all("figure")), len(page.all("script"))) == (3, 0)
    model.student_.effects_ = [0 * one for one in model.student_.effects_]
    assert "The noise hides all columns" in model.student_._repr_html_()


def test_a_card_draws_curves_in_html_and_leaves_them_out_of_markdown():
    card = full_card(curves=CURVES)
    page = Outline(card.as_html())
    assert (len(page.all("figure")), len(page.all("script"))) == (2, 0)
    text = "".join(page.text)
    assert "17 to 20: −0.5 ± 0.125; 20 to 30: +0.25 ± 0.0625" in text
    assert "<script>ward" in text
    assert card.as_markdown() == full_card(curves=()).as_markdown()


@pytest.mark.parametrize(
    "wrong", [{"noise": [0.1]}, {"noise": [0.1, 0.1, -0.1]}, {"effects": [0.0, 1.0, float("nan")]}],
)  # fmt: skip
def test_a_card_refuses_curves_that_say_nothing_clear(wrong):
    with pytest.raises((InvalidParameterError, NotPublishableError), match="curves"):
        full_card(curves=(structs.replace(CURVES[0], **wrong),))


def test_a_card_of_numbers_below_zero_can_be_written():
    model = test_regression.of(target_range=(-5, 5)).fit(*test_regression.made_up(1_000))
    assert model.card(*test_regression.made_up(100, 1)).student.judged.errors[0].low == -5
