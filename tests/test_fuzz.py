"""Hostile configurations, tables and calls: each ends in a sentence of tutelage and with an unspent budget, or works.

All cases are drawn from a seed, a tenth of them in each run of the quick tests.
"""

import random
import string
import warnings
from collections.abc import Callable
from contextlib import suppress
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tutelage
from runs_of_people import ADDITIVE, NEAREST, NUMBERS, VECTORS, configure_people
from test_cli import is_finding, write_people
from tutelage import GNMax, Ledger, PATEClassifier, PATERegressor, VoteHistogram
from tutelage.exceptions import TutelageError
from tutelage.features import Schema
from tutelage.partition import Shards, canonical_ids
from tutelage.privacy import ONE_ENTITY
from tutelage.reporting import read_card
from tutelage.students import load_student
from tutelage.tables import read_table

EACH = 300
SEEDS = [
    *range(EACH // 10),
    *(pytest.param(seed, marks=pytest.mark.rest) for seed in range(EACH // 10, EACH)),
]

# TOML

VALUES = (
    "9e400", "nan", "inf", "1" + "0" * 400, "0", "-1", "1e-300", "0.5", "true", "''", "' '", "[]", "[1, 2]",
    "['a', 'a']", "['a', 1]", "[nan, 1e400]", "{ a = 1 }", "{ name = 'x' }", "{ name = [] }", "2020-01-01", "12:00:00",
    '"\\u0000"', '"\\u202e"', '"~"', '"/"', '".."', "'private.csv'", "'config.toml'", "[['yes']]",
    "'" + "x" * 300 + "'", "[" * 3000 + "]" * 3000, "{ " + "a.b." * 50 + "c = 1 }", "9" * 5000, "0x1f", "'\udcff'",
)  # fmt: skip
SECTIONS = ("[private]", "[columns]", "[x]", "[schema]", "[[published]]")
KEYS = ("a." * 20_000 + "a", "name", "file", "''", "é", "epsilon", "classes", "range")


def hostile_toml(text: str, draw: random.Random) -> str:
    """Return a configuration with one to three lines that are not as they should be."""
    lines = text.splitlines()
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(lines))
        key, equals, _ = lines[at].partition("=")
        match draw.randrange(7):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[draw.randrange(len(lines))])
            case 2:
                lines.insert(at, f"{draw.choice(KEYS)} = {draw.choice(VALUES)}")
            case 3:
                place = draw.randrange(len(lines[at]) + 1)
                lines[at] = (
                    lines[at][:place]
                    + draw.choice(string.printable + "\0\udcff")
                    + lines[at][place:]
                )
            case _ if equals:
                lines[at] = f"{key}= {draw.choice(VALUES)}"
            case _:
                lines.insert(at, draw.choice(SECTIONS))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows with a label that no configuration declares, so that nothing can be released from them."""
    folder = tmp_path_factory.mktemp("fuzz")
    write_people(folder, 60, 40)
    with (folder / "private.csv").open("a") as file:
        file.write("30,0.5,north,a label of nobody,p9\n")
    return folder


def is_refused(project: Path, called: Callable[..., Any]) -> None:
    """Require that a run is refused by sentences, and leaves nothing."""
    before = {*project.rglob("*")}
    result = called("run", "config.toml", cwd=project)
    assert {*project.rglob("*")} == before
    assert result.returncode in (1, 2), (result.returncode, result.stdout, result.stderr)
    lines = [line for line in result.stderr.strip().splitlines() if not is_finding(line)]
    assert lines
    assert all(line.startswith("tutelage: ") and line.endswith((".", "?")) for line in lines), lines


@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_configurations_are_refused_in_sentences(seed, project, called):
    draw = random.Random(seed)  # noqa: S311
    configure_people(
        project, draw.choice((ADDITIVE, NEAREST, NUMBERS, VECTORS)), public='label = "ill"'
    )
    text = hostile_toml((project / "config.toml").read_text(), draw)
    (project / "config.toml").write_text(text, encoding="utf-8", errors="surrogateescape")
    is_refused(project, called)


# csv

CELLS = (
    b'"', b'"\n"', b",,", b"\r", b"\r\n", b"\n\n", b"\0", b"\xff", b"\xef\xbb\xbf", b"\x1b[31m", b"nan", b"-1e400",
    b"9" * 400, b"1_000", b"0x10", b"1.000,5", b"=1+1", b"2020-13-45", b"NA", b"\t", b"x" * 3000, b"\xe2\x80\xae",
    b";", b"p1", b"true", b"-0", b"\xf0\x9f\x98\x80",
)  # fmt: skip


def hostile_csv(content: bytes, draw: random.Random) -> bytes:
    """Return a table with one to three cells, lines or bytes that are not as they should be."""
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(content) + 1)
        match draw.randrange(6):
            case 0:
                content = content[:at] + draw.choice(CELLS) + content[at + draw.randrange(5) :]
            case 1:
                content = content.replace(b"\n", b"\n" + draw.choice(CELLS), draw.randint(1, 2))
            case 2:
                content = content[:at]
            case 3:
                content = content.replace(
                    draw.choice((b",", b"\n", b"age", b"ward", b"north", b"patient")),
                    draw.choice(CELLS),
                )
            case 4:
                content = draw.choice(CELLS) + content
            case _:
                content = draw.randbytes(draw.randrange(40)) + content[draw.randrange(60) :]
    return content


@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_tables_are_refused_in_sentences(seed, project, called):
    """They end with a label that no configuration declares, so that none of them may be used."""
    draw = random.Random(seed)  # noqa: S311
    kept = {name: (project / name).read_bytes() for name in ("private.csv", "public.csv")}
    configure_people(
        project, draw.choice((ADDITIVE, NEAREST, NUMBERS, VECTORS)), public='label = "ill"'
    )
    name = draw.choice([*kept])
    (project / name).write_bytes(hostile_csv(kept[name], draw))
    try:
        is_refused(project, called)
    finally:
        for one, content in kept.items():
            (project / one).write_bytes(content)


# Python

ARGUMENTS: tuple[Any, ...] = (
    None, True, -1, 0, 3, 10**400, 0.5, 1e308, float("nan"), float("inf"), 1j, "", "x", "\0", "\udcff", b"x", [], [[]],
    [1, 2], ["a", None], [10**400], {}, {"a": 1}, {"a": [1, 2]}, {1: 2}, object(), len, np.array([]), np.array(3),
    np.zeros((2, 0)), np.zeros((3, 3)), np.array(["a", "b", None], dtype=object), np.datetime64("NaT"),
    np.array([1, 2], dtype="u8") + np.uint64(2**63), range(3), Path(), iter(()),
)  # fmt: skip
ROWS, LABELS = np.arange(24.0).reshape(12, 2), np.array(["no", "yes"] * 6)
PUBLIC = ROWS + 0.5


def fitted(kind: Any, draw: random.Random) -> object:
    """Fit with one or two arguments that are not as they should be."""
    given: dict[str, Any] = {"X": ROWS, "y": LABELS, "X_public": PUBLIC}
    settings: dict[str, Any] = {
        "epsilon": 1.0,
        "classes": ["no", "yes"],
        "noise": tutelage.SimulationNoise(0),
    }
    if kind is PATERegressor:
        given["y"], settings = (
            ROWS[:, 0],
            {"epsilon": 1.0, "target_range": (0, 30), "noise": settings["noise"]},
        )
    names = [*signature(kind.fit).parameters][1:]
    for _ in range(draw.randint(1, 2)):
        if draw.random() < 0.5:
            given[draw.choice(names)] = draw.choice(ARGUMENTS)
        else:
            settings[draw.choice([*kind().get_params(deep=False)])] = draw.choice(ARGUMENTS)
    return kind(**settings).fit(given.pop("X"), given.pop("y"), **given)


CALLS: dict[int, tuple[Callable[..., object], ...]] = {
    1: (Schema, GNMax, canonical_ids, read_table, read_card, load_student),
    2: (
        VoteHistogram,
        Shards.of_silos,
        lambda one, other: Ledger.in_memory(epsilon=one, delta=other, unit=ONE_ENTITY),
        lambda one, other: Schema({"a": one, "b": other}),
        lambda one, other: Shards.of_entities(one, 3, key=other),
    ),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_calls_are_refused_by_errors_of_tutelage(seed):
    draw = random.Random(seed)  # noqa: S311
    taken = seed % 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(TutelageError):
            if taken == 0:
                fitted(draw.choice((PATEClassifier, PATERegressor)), draw)
            else:
                draw.choice(CALLS[taken])(*(draw.choice(ARGUMENTS) for _ in range(taken)))
