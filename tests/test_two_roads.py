"""Python, a configuration and a ledger are one road: the same rows are the same release."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from test_preflight import PATIENTS, SHARED, rows
from tutelage import Ledger, PATEClassifier
from tutelage.cli.config import load_config
from tutelage.cli.prepare import arguments, build_estimator, prepare_release
from tutelage.cli.sources import load_sources
from tutelage.exceptions import (
    BudgetExceededError,
    ConfigError,
    InvalidDataError,
    InvalidParameterError,
    LedgerMismatchError,
    PreflightError,
    PreflightWarning,
)
from tutelage.features import PublicColumns
from tutelage.methods import NoisyMoments, TeacherVotes
from tutelage.noise import SimulationNoise
from tutelage.tables import read_table

duckdb, polars, pyarrow = map(pytest.importorskip, ("duckdb", "polars", "pyarrow"))


def configured(
    folder: Path,
    private: Any,
    public: Any,
    unit: str,
    classes: str = '["no", "yes"]',
    more: str = "",
) -> Any:
    """Return a configuration of two csv files, whose label is `ill`, with more in [public]."""
    private.to_csv(folder / "private.csv", index=False)
    public.to_csv(folder / "public.csv", index=False)
    lines = [
        "[private]",
        'file = "private.csv"',
        unit,
        "[target]",
        'column = "ill"',
        f"classes = {classes}",
    ]
    lines += [
        "[public]",
        'file = "public.csv"',
        'label = "ill"',
        more,
        "[method]",
        'name = "noisy-moments"',
    ]
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
    prepare_release(settings, data).release()
    model = PATEClassifier(epsilon=1.0, classes=["no", "yes"], ledger=tmp_path / "one.ledger")
    tables = (read_table(tmp_path / name) for name in ("private.csv", "public.csv"))
    with pytest.raises(BudgetExceededError):  # which is of the same people
        model.check(next(tables), "ill", X_public=next(tables), entity_ids="patient")


def test_whole_numbers_are_classes_of_a_csv_file_in_python_as_in_a_configuration(tmp_path):
    private, public = (
        frame.assign(ill=(frame["ill"] == "yes").astype(int))
        for frame in (rows(300, 1), rows(120, 2))
    )
    settings = configured(tmp_path, private, public, 'unit = "row"', classes="[0, 1]")
    prepare_release(settings, load_sources(settings))
    tables = (read_table(tmp_path / name) for name in ("private.csv", "public.csv"))
    model = PATEClassifier(epsilon=1.0, classes=[0, 1], unit="row")
    model.check(next(tables), "ill", X_public=next(tables))


VOTES = """[method]
name = "teacher-votes"
teacher = "sklearn.tree.DecisionTreeClassifier"
n_teachers = 10
n_queries = 5
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("labels", [["no", "yes"], [0, 1], [0.0, 1.0]])
@pytest.mark.parametrize(
    "method", [NoisyMoments(), TeacherVotes(DecisionTreeClassifier(), n_teachers=10, n_queries=5)]
)
def test_classes_are_those_of_public_labels_in_python_as_in_a_configuration(
    labels, method, tmp_path
):
    private, public = (
        frame.assign(ill=np.array(labels, dtype=object)[(frame["ill"] == "yes").to_numpy(int)])
        for frame in (rows(300, 1), rows(120, 2))
    )
    public.loc[5, "ill"] = None  # which makes floats of whole numbers
    settings = configured(tmp_path, private, public, 'unit = "row"', classes='["a", "b"]')
    text = (tmp_path / "run.toml").read_text().replace('classes = ["a", "b"]\n', "")
    if isinstance(method, TeacherVotes):
        text = text.replace('[method]\nname = "noisy-moments"\n', VOTES)
    (tmp_path / "run.toml").write_text(text)
    settings = load_config(tmp_path / "run.toml")
    by_file = prepare_release(settings, load_sources(settings), insist=True)
    given = {name: read_table(tmp_path / f"{name}.csv") for name in ("private", "public")}
    model = PATEClassifier(epsilon=1.0, unit="row", method=method, random_state=0)
    in_python = model.prepare(
        given["private"], "ill", X_public=given["public"], y_public="ill", insist=True
    )
    of_frame = model.prepare(
        private.infer_objects(), "ill", X_public=public.infer_objects(), y_public="ill", insist=True
    )
    assert by_file.public.classes.tolist() == in_python.public.classes.tolist()
    assert repr(of_frame.public.classes.tolist()) == repr(
        ["no", "yes"] if "no" in labels else [0, 1]
    )
    assert (in_python.public.labels is None) == isinstance(method, TeacherVotes)
    model.set_params(classes=in_python.public.classes.tolist())
    if isinstance(method, TeacherVotes):  # which has no use for them
        with pytest.raises(InvalidParameterError, match="does not learn from public labels"):
            model.prepare(
                given["private"], "ill", X_public=given["public"], y_public="ill", insist=True
            )


def test_public_labels_of_one_class_say_no_classes(tmp_path):
    public = rows(120, 2).assign(ill="no")
    with pytest.raises(InvalidDataError, match="public labels must hold at least 2 classes"):
        PATEClassifier(1.0, unit="row").prepare(
            rows(300, 1), "ill", X_public=public, y_public="ill"
        )
    configured(tmp_path, rows(300, 1), public, 'unit = "row"')
    text = (tmp_path / "run.toml").read_text().replace('classes = ["no", "yes"]\n', "")
    (tmp_path / "run.toml").write_text(text)
    settings = load_config(tmp_path / "run.toml")
    with pytest.raises(InvalidDataError, match="public labels must hold at least 2 classes"):
        prepare_release(settings, load_sources(settings))


def test_a_class_of_public_labels_like_a_formula_is_refused_before_a_release(tmp_path):
    private, public = (
        frame.replace({"ill": {"no": "=1+1"}}) for frame in (rows(300, 1), rows(120, 2))
    )
    configured(tmp_path, private, public, 'unit = "row"')
    text = (tmp_path / "run.toml").read_text().replace('classes = ["no", "yes"]\n', "")
    (tmp_path / "run.toml").write_text(text)
    settings = load_config(tmp_path / "run.toml")
    with pytest.raises(
        ConfigError, match=r"must not begin like a formula.*\[target\] lists no classes"
    ):
        prepare_release(settings, load_sources(settings))


def test_settings_that_private_rows_have_chosen_are_told_before_a_release_and_on_its_card():
    model = PATEClassifier(1.0, ["no", "yes"], unit="row")
    with pytest.warns(PreflightWarning, match="Danger"):
        release = model.prepare(rows(300, 1), "ill", X_public=rows(120, 2), tuned_on="private")
    assert "tuned-on-private" in {one.code for one in release.release().card().findings}


def test_a_category_of_the_scored_rows_alone_is_known_and_no_map_sees_their_numbers(tmp_path):
    public = rows(120, 2)
    public.loc[119, ["ward", "dose"]] = "west", 1e6
    settings = configured(tmp_path, rows(300, 1), public, 'unit = "row"', more="evaluate_last = 20")
    release = prepare_release(settings, load_sources(settings))
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
        prepare_release(settings, data)


# One table in eleven forms, with four kinds of labels


NUMBERS = ["age", "dose"]
KINDS_OF_LABELS: dict[str, Callable[[Any], Any]] = {
    "whole numbers": lambda ill: (ill == "yes").astype(np.int64),
    "floats": lambda ill: (ill == "yes").astype(np.float64),
    "text": lambda ill: np.where(ill == "yes", "1", "0").astype(object),
    "truth values": lambda ill: np.asarray(ill == "yes"),
}
FILES: dict[str, Callable[[Any, Path], None]] = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "csv.gz": lambda frame, path: frame.to_csv(path, index=False),
    "parquet": lambda frame, path: frame.to_parquet(path, index=False),
    "npz": lambda frame, path: np.savez(
        path, X=frame[NUMBERS].to_numpy(), ill=np.array(frame["ill"].tolist())
    ),
}
IN_MEMORY: dict[str, Callable[[Any], Any]] = {
    "pandas": lambda frame: frame,
    "Polars": polars.from_pandas,
    "Arrow": lambda frame: pyarrow.Table.from_pandas(frame, preserve_index=False),
    "DuckDB": duckdb.from_df,
    "dictionary": lambda frame: {name: frame[name].to_numpy() for name in frame},
    "array": lambda frame: frame[NUMBERS].to_numpy(),
    "Dask": lambda frame: pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=3),
}


def released(model: Any, **given: Any) -> bytes:
    """Return what a student predicts that learns by noise from one seed."""
    # Some forms have labels of the public rows, for which no report is made.
    model.set_params(noise=SimulationNoise(0), ledger=None)
    found = model.prepare(**given, report=False).release()
    return found.predict_proba(rows(50, 3)[NUMBERS].to_numpy()).tobytes()


def answers_by_form(labels: str, folder: Path) -> dict[str, bytes]:
    """Return what is released of rows with these labels, by form and road."""
    frames = {"private": rows(300, 1)[[*NUMBERS, "ill"]], "public": rows(120, 2)[[*NUMBERS, "ill"]]}
    frames = {
        name: one.assign(ill=KINDS_OF_LABELS[labels](one["ill"])) for name, one in frames.items()
    }
    private, public = frames["private"], frames["public"]
    classes = [False, True] if labels == "truth values" else [0, 1]
    model = PATEClassifier(1.0, classes, unit="row", question="ill")
    answers = dict[str, bytes]()
    for form, made in IN_MEMORY.items():
        others = public[NUMBERS] if form == "Dask" else made(public)
        y: Any = private["ill"].to_numpy() if form == "array" else "ill"
        answers[form] = released(model, X=made(private), y=y, X_public=others)
    for ending, written in FILES.items():
        for name, frame in frames.items():
            written(frame, folder / f"{name}.{ending}")
        text = RUN_TOML.format(
            ending=ending, classes='["False", "True"]' if labels == "truth values" else "[0, 1]"
        )
        (folder / "run.toml").write_text(text)
        settings = load_config(folder / "run.toml")
        data = load_sources(settings)
        model_of_file = build_estimator(settings, data)
        answers[f"{ending} by a configuration"] = released(
            model_of_file, **arguments(settings, data)
        )
        if ending != "npz":
            tables = [read_table(folder / f"{name}.{ending}") for name in frames]
            answers[f"{ending} in Python"] = released(
                model, X=tables[0], y="ill", X_public=tables[1]
            )
    return answers


RUN_TOML = """
[private]
file = "private.{ending}"
unit = "row"
[target]
column = "ill"
classes = {classes}
[public]
file = "public.{ending}"
[privacy]
epsilon = 1
[output]
folder = "out"
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("labels", list(KINDS_OF_LABELS))
def test_eleven_forms_of_one_table_are_one_release(labels, tmp_path):
    answers = answers_by_form(labels, tmp_path)
    assert len(answers) == 14
    assert [form for form, one in answers.items() if one != answers["pandas"]] == []


@pytest.mark.parametrize("label", ["maybe", "yes ?", "2", ""])
def test_a_label_that_is_no_class_is_refused_in_every_form(label, tmp_path):
    private = rows(300, 1)
    private.loc[7, "ill"] = label
    settings = configured(tmp_path, private, rows(120, 2), 'unit = "row"')
    model = PATEClassifier(1.0, ["no", "yes"], unit="row")
    forms = [
        (made(private), made(rows(120, 2)))
        for form, made in IN_MEMORY.items()
        if form not in ("array", "Dask")
    ]
    forms.append((read_table(tmp_path / "private.csv"), read_table(tmp_path / "public.csv")))
    said = set[str]()
    for X, public in forms:
        with pytest.raises(InvalidDataError) as refused:
            model.prepare(X, "ill", X_public=public, y_public="ill")
        said.add(str(refused.value))
    with pytest.raises(InvalidDataError) as refused:
        prepare_release(settings, load_sources(settings))
    assert {*said, str(refused.value)} == said
    assert len(said) == 1
    assert not label or label not in said.pop()


@pytest.mark.parametrize("classes", [
    {"a": [1], "b": ["1.0"], "c": ["x"]}, ["0", "1", "False", "True"], {"a": [1, "x"], "b": [True]}, [7, 2**53 + 1],
])  # fmt: skip
def test_classes_between_which_one_cell_could_move_all_others_are_refused(classes):
    model = PATEClassifier(1.0, classes, unit="row")
    with pytest.raises(
        InvalidParameterError, match=r"1.0, '1' and True are one value|2\*\*53|each label once"
    ):
        model.prepare(rows(300, 1)[NUMBERS], [1] * 300, X_public=rows(120, 2)[NUMBERS])


ARRAYS = """
[private]
file = "private.npz"
unit = "row"
[target]
column = "{label}"
classes = [0, 1]
[public]
file = "public.npz"
[privacy]
epsilon = 0.5
budget = 1
ledger = "{ledger}.ledger"
[output]
folder = "out"
"""


@pytest.mark.filterwarnings("ignore")
def test_arrays_are_one_data_set_whichever_label_is_predicted(tmp_path):
    frame = rows(300, 1)
    X = frame[NUMBERS].to_numpy()
    labels = {
        "ill": (frame["ill"] == "yes").to_numpy(int),
        "old": (frame["age"] > 50).to_numpy(int),
    }
    np.savez(tmp_path / "private.npz", X=X, **labels)
    np.savez(tmp_path / "public.npz", X=rows(120, 2)[NUMBERS].to_numpy())

    def release(label: str, ledger: str) -> Any:
        (tmp_path / "run.toml").write_text(ARRAYS.format(label=label, ledger=ledger))
        settings = load_config(tmp_path / "run.toml")
        return prepare_release(settings, load_sources(settings))

    release("ill", "one").release()
    with pytest.raises(LedgerMismatchError, match="contains the budget of these data"):
        release("old", "two")
    release("old", "one").release()
    model = PATEClassifier(
        0.5, [0, 1], budget=1.0, unit="row", question="ill", ledger=tmp_path / "one.ledger"
    )
    assert model.fit(X, labels["ill"], X_public=rows(120, 2)[NUMBERS].to_numpy()).release_.cost == 0


def test_rows_that_only_score_are_refused_before_the_release_of_batches(tmp_path):
    public = rows(120, 2)
    public.loc[119, "dose"] = np.inf
    configured(
        tmp_path, rows(300, 1), public, 'unit = "row"', more="evaluate_last = 20\nlater = true"
    )
    rows(300, 1).to_parquet(tmp_path / "private.parquet", index=False)
    public.to_parquet(tmp_path / "public.parquet", index=False)
    text = (
        (tmp_path / "run.toml")
        .read_text()
        .replace('private.csv"', 'private.parquet"\nbatches = true')
    )
    text = text.replace("public.csv", "public.parquet")
    (tmp_path / "run.toml").write_text(text)
    settings = load_config(tmp_path / "run.toml")
    with pytest.raises(InvalidDataError, match="contains infinity"):
        prepare_release(settings, load_sources(settings))


def test_a_thousand_columns_of_an_array_have_two_steps_each():
    random = np.random.default_rng(0)
    X, public = random.normal(size=(40, 1_100)), random.normal(size=(60, 1_100))
    release = PATEClassifier(1.0, [0, 1], unit="row").prepare(
        X, [0, 1] * 20, X_public=public, insist=True
    )
    assert release.public.teacher_rows.shape == (60, 2_200)
