"""A table in any form gives the same ballots and the same student, which predicts the same without this package."""

import csv
import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import FITS_AGAIN
from test_named_rows import FORMS, PRIVATE, PUBLIC
from tutelage import PATEClassifier, SimulationNoise
from tutelage.teachers import VectorBallots

pytestmark = [FITS_AGAIN, pytest.mark.rest]


def fitted(rows: Any, public: Any) -> Any:
    model = PATEClassifier(VectorBallots(), epsilon=30.0, unit="person", noise=SimulationNoise(0), random_state=0)
    return model.fit(rows, "ill", X_public=public, entity_ids="person")


@pytest.fixture(scope="module")
def expected() -> Any:
    return fitted(PRIVATE, PUBLIC)


@pytest.mark.parametrize("form", [name for name in FORMS if name != "reordered"])
def test_every_form_gives_the_same_ballots_and_the_same_student(form, expected, tmp_path):
    model = fitted(FORMS[form](PRIVATE, tmp_path), FORMS[form](PUBLIC, tmp_path))
    assert [one.totals.tobytes() for one in model.ballots_] == [one.totals.tobytes() for one in expected.ballots_]
    assert model.student_[-1].coef_.tobytes() == expected.student_[-1].coef_.tobytes()
    assert model.predict_proba(PRIVATE).tobytes() == expected.predict_proba(PRIVATE).tobytes()
    assert len(np.unique(model.predict(PRIVATE))) == 2


WITHOUT_THE_PACKAGE = """if True:
    import csv, json, sys
    sys.modules["tutelage"] = sys.modules["sklearn"] = None  # whoever imports one of them fails
    import numpy as np
    from onnxruntime import InferenceSession

    session = InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    with open(sys.argv[2], newline="") as file:
        rows = list(csv.DictReader(file))
    cells = {
        one.name: np.array([[row[one.name]] for row in rows], dtype=object if "string" in one.type else np.float64)
        for one in session.get_inputs()
    }
    print(json.dumps(session.run(["label"], cells)[0].tolist()))
"""


def without_the_package(student: Path, rows: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_THE_PACKAGE, str(student), str(rows)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def written_for_onnx(folder: Path, columns: list[str]) -> Path:
    """Write rows whose cells are what the file of a student takes: days for dates, truth values as Python has them."""
    rows = PRIVATE.select(columns).to_dicts()
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, "seen": (row["seen"] - date(1970, 1, 1)).days})
    return folder / "rows.csv"


@pytest.mark.parametrize("step", [1, -1], ids=["in order", "reordered"])
def test_a_process_without_this_package_predicts_the_same(step, expected, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("skl2onnx")
    from tutelage.students import export_onnx

    file = export_onnx(expected.whole_student(), tmp_path / "student.onnx")
    rows = written_for_onnx(tmp_path, PRIVATE.columns[::step])
    printed = without_the_package(file, rows)
    assert printed.returncode == 0, printed.stderr
    assert json.loads(printed.stdout) == expected.predict(PRIVATE).tolist()
    rows.write_text(rows.read_text().replace("ward", "wrad", 1))
    assert "KeyError: 'ward'" in without_the_package(file, rows).stderr
