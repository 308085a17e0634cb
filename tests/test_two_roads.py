"""Python, a configuration and a ledger are one road: the same rows are the same release."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from test_preflight import PATIENTS, SHARED, rows
from tutelage import Ledger, PATEClassifier
from tutelage.cli.config import load_config
from tutelage.cli.prepare import prepared
from tutelage.cli.sources import load_sources
from tutelage.exceptions import BudgetExceededError, PreflightError
from tutelage.features import PublicColumns
from tutelage.noise import SimulationNoise
from tutelage.tables import read_table


def configured(
    folder: Path, private: Any, public: Any, unit: str, classes: str = '["no", "yes"]', more: str = ""
) -> Any:
    """Return a configuration of two csv files, whose label is `ill`, with more in [public]."""
    private.to_csv(folder / "private.csv", index=False)
    public.to_csv(folder / "public.csv", index=False)
    lines = ["[private]", 'file = "private.csv"', unit, "[target]", 'column = "ill"', f"classes = {classes}"]
    lines += ["[public]", 'file = "public.csv"', 'label = "ill"', more, "[method]", 'name = "noisy-moments"']
    lines += ["[privacy]", "epsilon = 1", 'ledger = "one.ledger"', "[output]", 'folder = "out"']
    (folder / "run.toml").write_text("\n".join(lines))
    return load_config(folder / "run.toml")


def test_a_first_sum_that_nearly_fills_its_new_ledger_has_the_noise_of_its_epsilon(tmp_path):
    given: Any = {"epsilon": 0.99, "budget": 1.0, "noise": SimulationNoise(0), "unit": "patient"}
    model = PATEClassifier(ledger=tmp_path / "new.ledger", classes=["no", "yes"], **given)
    fitted = model.fit(PATIENTS, "ill", X_public=rows(120, 2), entity_ids="patient")
    assert Ledger.open(tmp_path / "new.ledger").state().accounting == "gaussian"
    assert 0.98 < fitted.epsilon_ <= 0.99
    assert 0 < fitted.ledger_.remaining < 0.02  # shares of μ², not of ε


def test_a_ledger_of_a_configuration_is_that_of_python(tmp_path):
    settings = configured(tmp_path, PATIENTS, rows(120, 2), 'entity = "patient"')
    data = load_sources(settings)
    prepared(settings, data).release()
    model = PATEClassifier(epsilon=1.0, classes=["no", "yes"], ledger=tmp_path / "one.ledger")
    tables = (read_table(tmp_path / name) for name in ("private.csv", "public.csv"))
    with pytest.raises(BudgetExceededError):  # which is of the same people
        model.check(next(tables), "ill", X_public=next(tables), entity_ids="patient")


def test_whole_numbers_are_classes_of_a_csv_file_in_python_as_in_a_configuration(tmp_path):
    private, public = (frame.assign(ill=(frame["ill"] == "yes").astype(int)) for frame in (rows(300, 1), rows(120, 2)))
    settings = configured(tmp_path, private, public, 'unit = "row"', classes="[0, 1]")
    prepared(settings, load_sources(settings))
    tables = (read_table(tmp_path / name) for name in ("private.csv", "public.csv"))
    model = PATEClassifier(epsilon=1.0, classes=[0, 1], unit="row")
    model.check(next(tables), "ill", X_public=next(tables))


def test_a_category_of_the_scored_rows_alone_is_known_and_no_map_sees_their_numbers(tmp_path):
    public = rows(120, 2)
    public.loc[119, ["ward", "dose"]] = "west", 1e6
    settings = configured(tmp_path, rows(300, 1), public, 'unit = "row"', more="evaluate_last = 20")
    release = prepared(settings, load_sources(settings))
    columns = PublicColumns.learn(public, ["age", "dose", "ward"])
    given: Any = {"classes": ["no", "yes"], "unit": "row", "ledger": tmp_path / "other.ledger"}
    model = PATEClassifier(1.0, **given, columns=columns)
    alike = model.prepare(rows(300, 1), "ill", X_public=public[:100], y_public="ill")
    assert "west" in columns.kinds["ward"]
    assert np.array_equal(release.public.teacher_rows, alike.public.teacher_rows)


def test_private_rows_among_the_scored_ones_are_refused(tmp_path):
    private = rows(300, 1)
    public = pd.concat([rows(120, 2), private[:60]])
    settings = configured(tmp_path, private, public, 'unit = "row"', more="evaluate_last = 60")
    data = load_sources(settings)
    with pytest.raises(PreflightError, match=SHARED):
        prepared(settings, data)
