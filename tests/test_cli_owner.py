"""What a run tells the owner of the private rows on standard error, and whose budget it spends from."""

import numpy as np
import pytest

from test_cli import configure, refusal, write_rows
from tutelage import Ledger
from tutelage.partition import canonical_ids, folded_ids
from tutelage.preflight import IN_PYTHON, Given, differ_by_spelling_only, preflight

ROOM = ("delta = 1e-5", "delta = 1e-5\nbudget = 200")
PEOPLE = [f"p{number // 2}" for number in range(300)]


@pytest.fixture
def folder(tmp_path):
    smokers = np.random.default_rng(7).choice(["no", "yes"], 420).tolist()
    write_rows(tmp_path / "private.csv", 300, 1, extra={"smoker": smokers[:300], "patient": PEOPLE})
    write_rows(tmp_path / "public.csv", 120, 2, extra={"smoker": smokers[300:]})
    return tmp_path


@pytest.mark.parametrize("private", ['entity = "patient"', 'unit = "row"'], ids=["people", "rows"])
def test_two_questions_about_the_same_people_share_one_budget(private, folder, called):
    configure(folder, ROOM, private=private)
    assert called("run", "config.toml", cwd=folder).returncode == 0
    one = Ledger.open(folder / "private.csv.ledger").state().spent
    other = [('label = "ill"', 'label = "smoker"'), ('folder = "out"', 'folder = "other"')]
    configure(folder, ROOM, *other, private=private + '\nignore = ["age"]', public='label = "smoker"')
    asked = called("run", "config.toml", cwd=folder)
    assert asked.returncode == 0, asked.stderr
    assert Ledger.open(folder / "private.csv.ledger").state().spent == pytest.approx(2 * one)
    write_rows(folder / "private.csv", 300, 3, extra={"smoker": ["no"] * 300, "patient": [f"q{i}" for i in range(300)]})
    refused = refusal(called("run", "config.toml", "--overwrite", cwd=folder), 1)
    assert "is tied to other people or other rows" in refused


def test_changed_rows_that_did_not_vote_are_said_to_be_unused(folder, called):
    configure(folder, ROOM, private='unit = "row"')
    assert called("run", "config.toml", cwd=folder).returncode == 0
    labels = (folder / "out" / "labels.csv").read_text()
    smokers = np.random.default_rng(8).choice(["no", "yes"], 300).tolist()
    write_rows(folder / "private.csv", 300, 9, extra={"smoker": smokers, "patient": PEOPLE})
    again = called("run", "config.toml", "--overwrite", "--data-changed", "--json", cwd=folder)
    said = "All queries were labeled by an earlier run. They keep their labels, which do not use the changed rows. To"
    assert said in again.stderr
    assert (folder / "out" / "labels.csv").read_text() == labels
    configure(folder, ROOM, ("queries = 40", "queries = 50"), private='unit = "row"')
    more = called("run", "config.toml", "--overwrite", "--data-changed", cwd=folder)
    assert " 40 of the queries were labeled by an earlier run" in more.stderr
    assert "40 queries were labeled before" in more.stdout
    configure(folder, ROOM, ('label = "ill"', 'label = "smoker"'), private='unit = "row"', public='label = "smoker"')
    other = called("run", "config.toml", "--overwrite", "--data-changed", cwd=folder)
    assert "answered" not in other.stdout + other.stderr


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Mr Ö", "mr ö"), ("p7", "p\u200b7"), ("p7", "\ufeffp7"), ("p7", "ｐ７"), ("7", "7.0"),
        ("a b", "a  b"), ("STRASSE", "straße"), ("ﬁ1", "fi1"),
    ],
)  # fmt: skip
def test_ids_that_read_alike_fold_alike(one, other):
    assert len(set(canonical_ids([one, other]).tolist())) == 2
    assert len(set(folded_ids(canonical_ids([one, other])).tolist())) == 1
    assert differ_by_spelling_only(np.array([one, other, one]))


@pytest.mark.parametrize(("one", "other"), [("p7", "p07"), ("7", "70"), ("7.5", "7.50"), ("0", "00x"), ("a-b", "ab")])
def test_ids_that_do_not_read_alike_stay_apart(one, other):
    assert not differ_by_spelling_only(np.array([one, other, one]))


def shared(private, public) -> bool:
    given = Given(
        private=private, public=public, numbers=(), columns={}, labels=np.arange(len(private)) % 2, n_classes=2
    )
    found = preflight(given, IN_PYTHON)
    return any("equal private rows" in one for one in (*found.refusals, *found.warnings))


def test_equal_rows_are_chance_in_a_table_of_few_and_not_in_one_of_many():
    rng = np.random.default_rng(0)
    assert not shared(rng.integers(0, 3, (500, 4)), rng.integers(0, 3, (200, 4)))
    many, others = rng.uniform(size=(500, 4)), rng.uniform(size=(200, 4))
    assert not shared(many, others)
    assert shared(many, np.concatenate([others, many[:1]]))
    # A single equal pair, no two private rows alike: chance where cells take 25 values, and none where they take 1,000.
    for values, found in ((25, False), (1000, True)):
        cells = np.random.default_rng(1).integers(0, values, (700, 3))
        apart = np.unique(cells, axis=0)[np.random.default_rng(2).permutation(600)]
        assert shared(apart[:400], apart[399:]) is found
