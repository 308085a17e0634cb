import gzip

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from tutelage.datasets import adult, load_adult
from tutelage.exceptions import InvalidDataError


@pytest.fixture(scope="module")
def bundled():
    return load_adult()


def as_uci_lines(X_all: np.ndarray, *, test_file: bool) -> list[str]:
    """Return records as UCI's files spell them."""
    lines = ["|1x3 Cross validator"] if test_file else []
    for record in X_all:
        words = [
            adult._CATEGORIES[name][code] if name in adult._CATEGORIES else str(code)
            for name, code in zip(adult.BUNDLED, record, strict=True)
        ]
        words.insert(2, "77516")  # fnlwgt, which nothing uses
        lines.append(", ".join(words) + ("." if test_file else ""))
    return [*lines, ""]


def test_the_split_is_the_papers(bundled):
    assert bundled.X_private.shape == (32_561, 13)
    assert bundled.X_public.shape == (16_281, 13)
    assert bundled.y_private.shape == (32_561,)
    assert bundled.y_public.shape == (16_281,)
    assert "fnlwgt" not in bundled.feature_names
    assert bundled.classes[1] == ">50K"
    assert bundled.y_private.sum() == 7841  # UCI: 24.08 % of adult.data
    assert bundled.X_private[0].tolist() == [39, 5, 0, 13, 2, 8, 3, 0, 1, 2174, 0, 40, 0]


def test_every_record_equals_the_reference(data_folder):
    path = data_folder / "adult.csv.gz"
    if not path.is_file():
        pytest.skip("adult.csv.gz is not in TUTELAGE_DATA")
    with gzip.open(path, "rt") as file:
        rows = [line.split(",", 1) for line in file.read().splitlines()[1:]]
    train, test = adult._read_bundle()
    assert len(rows) == 48_842
    assert np.array_equal(adult.parse(rest for part, rest in rows if part == "train"), train)
    assert np.array_equal(adult.parse(rest for part, rest in rows if part == "test"), test)


def test_ucis_own_files_give_the_same_data(bundled, tmp_path):
    train, test = adult._read_bundle()
    (tmp_path / "adult.data").write_text("\n".join(as_uci_lines(train, test_file=False)))
    (tmp_path / "adult.test").write_text("\n".join(as_uci_lines(test, test_file=True)))
    loaded = load_adult(tmp_path)
    for name in ("X_private", "y_private", "X_public", "y_public"):
        assert np.array_equal(getattr(loaded, name), getattr(bundled, name))


def test_files_that_are_not_adult_are_refused(tmp_path):
    with pytest.raises(InvalidDataError, match=r"adult\.data does not exist"):
        load_adult(tmp_path)
    (tmp_path / "adult.data").write_text("39, State-gov, 77516\n")
    (tmp_path / "adult.test").write_text("")
    with pytest.raises(InvalidDataError, match="Line 1 is not an Adult record"):
        load_adult(tmp_path)
    (tmp_path / "adult.data").write_text("")
    with pytest.raises(InvalidDataError, match="32561 training and 16281 test rows"):
        load_adult(tmp_path)


def test_a_forest_on_all_rows_reaches_the_papers_baseline(bundled):
    forest = RandomForestClassifier(n_estimators=30, random_state=0, n_jobs=-1)
    accuracy = forest.fit(bundled.X_private, bundled.y_private).score(
        bundled.X_public, bundled.y_public
    )
    assert accuracy == pytest.approx(0.85, abs=0.01)  # PATE 2017, Appendix C: 85 %
