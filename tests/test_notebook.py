"""The example notebook runs, shows what is stored in it, and shows progress in a real kernel."""

import json
import re
from collections.abc import Iterable
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest

from conftest import FITS_AGAIN, REPOSITORY

FILE = REPOSITORY / "examples" / "notebook.ipynb"
NOTEBOOK: dict[str, Any] = json.loads(FILE.read_text())
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def sections_of(outputs: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names of the tables and cards that are shown: the stored notebook shows what a run would."""
    pages = "".join(
        "".join(output["data"].get("text/html", "")) for output in outputs if "data" in output
    )
    found = re.findall(r'aria-label="([^"]*)"', pages)
    assert len(found) > 1
    return found


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
    client.NotebookClient(
        notebook, timeout=250, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    lines = [
        output["data"]["text/plain"] for output in shown if output["output_type"] == "display_data"
    ]
    assert [re.sub("[█ ]+", " ", line) for line in lines] == [
        f"Casting ballots, round {number} of 2 100 %" for number in (1, 2)
    ]
    assert sections_of(shown) == sections_of(output for cell in CODE for output in cell["outputs"])
