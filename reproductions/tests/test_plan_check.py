"""The reproduction of plans: predictions beside runs, on small data sets."""

import numpy as np
import pytest

from conftest import REPOSITORY
from tutelage.planning.references import REFERENCES
from tutelage_reproductions import plan_check, rivals_data
from tutelage_reproductions.plan_check import _Cell
from tutelage_reproductions.record import Record
from tutelage_reproductions.rivals_data import RivalData, Source


def made_up(fold, download):
    rng = np.random.default_rng(fold)
    y = rng.integers(0, 2, 500)
    X = np.column_stack([3 * y + rng.normal(size=500), rng.normal(size=500)])
    parts = slice(0, 250), slice(250, 380), slice(380, 500)
    private, public, scored = ((X[part], y[part]) for part in parts)
    return RivalData(
        name="Wine", private=private[0], y_private=private[1], public=public[0], y_public=public[1], scored=scored[0],
        y_scored=scored[1],
    )  # fmt: skip


@pytest.mark.slow
def test_the_record_compares_predictions_choices_and_bounds(monkeypatch):
    monkeypatch.setattr(
        plan_check, "ALL_SOURCES", (Source("Wine", made_up), Source("Iris", made_up))
    )
    monkeypatch.setattr(plan_check, "_QUICK_SOURCES", ("Wine",))
    record = plan_check.reproduce(quick=True, download=False, progress=False)
    rows = {row.name: row for row in record.rows}
    predicted = rows["Wine, ε = 1: vector ballots, predicted and measured, %"]
    assert predicted.published is not None
    assert predicted.published == pytest.approx(predicted.ours, abs=5)
    assert predicted.at_least == pytest.approx(predicted.published - 3)
    (proved,) = (row for name, row in rows.items() if name.endswith(": proved ε"))
    assert proved.ours <= 1 == proved.at_most
    assert "Wine at ε = 1, Iris as a stand-in: predicted, %" in rows
    assert rows["largest error of a prediction, points"].ours == pytest.approx(
        abs(predicted.published - predicted.ours)
    )


def test_what_is_still_to_come_is_fitted_without_the_data_set_that_is_predicted():
    def cell(name, gain, missing):
        return _Cell(name, 1.0, 100, 0.5, gain, 0.5 + missing, 0.0, 1)

    cells = [cell("A", 0.1, 0.05), cell("B", 0.1, 0.02), cell("C", -0.1, 0.3)]
    assert plan_check._fitted([one for one in cells if one.name != "A"]) == pytest.approx(0.2)
    assert plan_check._fitted([one for one in cells if one.name != "B"]) == pytest.approx(0.5)


def test_the_grid_has_fifty_settings_that_differ():
    grid = plan_check._grid()
    assert len(grid) == len({name for name, _ in grid}) == 50


@pytest.mark.parametrize("name", rivals_data.BUNDLED)
def test_small_data_sets_are_dealt_into_parts_that_share_no_row(name):
    parts = rivals_data.bundled(name, fold=1)
    rows = len(parts.private) + len(parts.public) + len(parts.scored)
    assert rows == len(rivals_data.BUNDLED[name]().data)
    assert abs(len(parts.public) - rows / 4) <= 1
    assert set(parts.y_public) == set(parts.y_private)


def test_the_references_of_a_plan_are_the_recorded_numbers():
    record = Record.load(REPOSITORY / "docs" / "results" / "plan-check.json")
    measured = {row.name: row.ours for row in record.rows}
    for one in REFERENCES:
        recorded = [
            measured[f"{one.name}, ε = {epsilon}: vector ballots, predicted and measured, %"]
            for epsilon in ("0.1", "0.5", "1", "3")
        ]
        assert one.shares == pytest.approx([number / 100 for number in recorded], abs=5.1e-4)
