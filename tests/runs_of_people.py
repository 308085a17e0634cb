"""Files and configurations of runs in which every person is a teacher, for tests of the command line."""

from pathlib import Path

from test_cli import write_rows

CONFIG = """
[private]
file = "private.csv"
label = "ill"
classes = ["no", "yes"]
{private}

[public]
file = "public.csv"
label = "ill"
evaluate_last = 60
{public}

[teachers]
estimator = "tutelage.teachers.{teacher}"
{parameters}

[privacy]
delta = 1e-5
{privacy}

[output]
folder = "out"
{more}
"""
NEAREST = {"teacher": "NearestQueries", "parameters": "parameters = { cap = 5 }", "more": "votes = true"}
VECTORS = {"teacher": "VectorBallots", "parameters": "", "more": ""}


def configure_people(folder: Path, by: dict[str, str], **sections: str) -> None:
    parts = {"private": 'entity = "patient"', "public": "", "privacy": "epsilon = 2.0", **by, **sections}
    (folder / "config.toml").write_text(CONFIG.format(**parts))


def write_people(folder: Path) -> None:
    """Write 3,000 private rows of 1,500 patients, and 260 public rows."""
    write_rows(folder / "private.csv", 3000, 1, extra={"patient": [f"p{i // 2}" for i in range(3000)]})
    write_rows(folder / "public.csv", 260, 2)
