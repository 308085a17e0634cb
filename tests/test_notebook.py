"""The example notebook runs, shows what is stored in it, and shows progress in a real kernel."""

import json
import re
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest

from conftest import FITS_AGAIN, REPOSITORY

pytest.importorskip("pandas")

FILE = REPOSITORY / "examples" / "notebook.ipynb"
NOTEBOOK: dict[str, Any] = json.loads(FILE.read_text())
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


@FITS_AGAIN
@pytest.mark.rest
def test_every_cell_of_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, said = {}, StringIO()
    with redirect_stdout(said):
        for cell in CODE:
            exec("".join(cell["source"]), names)  # noqa: S102  our own example
    assert re.search(r"^8\d\.\d% of 8,281 rows$", said.getvalue(), re.MULTILINE)
    assert (tmp_path / "results" / "student.skops").is_file()


@pytest.mark.slow
def test_a_kernel_shows_progress_and_the_card(tmp_path):
    formats, client = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = formats.read(FILE, as_version=4)
    client.NotebookClient(notebook, timeout=250, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    lines = [output["data"]["text/plain"] for output in shown if output["output_type"] == "display_data"]
    assert [re.sub("[█ ]+", " ", line) for line in lines] == [
        f"Casting ballots, round {number} of 2 100 %" for number in (1, 2)
    ]
    pages = "".join(output["data"].get("text/html", "") for output in shown if "data" in output)
    assert "Privacy card:" in pages
    assert "Privacy guarantee:" in pages
