"""``tutelage plan`` as a user meets it, and its promise kept by a run."""

import json
import re
import tomllib

import numpy as np
import pytest

from test_cli import configure, refusal, write_people, write_rows
from tutelage.datasets import load_digits

WISH = ("plan-votes", "--epsilon", 3, "--delta", 1e-6, "--rows", 5000, "--classes", 3, "--queries", 20)


def test_a_plan_is_a_table_a_recommendation_and_its_assumptions(called):
    printed = called(*WISH)
    assert printed.returncode == 0, printed.stderr
    text = " ".join(printed.stdout.split())
    assert "ε = 3 at δ = 1e-06, worst case" in text
    (short,) = re.findall(r"Recommended: \d+ teachers, (\w+ (?:T \d+ )?[σb] [\d./]+), \d+ queries", text)
    assert text.count(short) == 2  # in the table too
    assert "T is the threshold" in text
    assert "Nothing was said about the teachers" in text
    assert "[teachers] number = " in text
    assert max(map(len, printed.stdout.splitlines())) <= 80


def test_what_is_known_of_teachers_takes_the_place_of_the_assumption(called):
    printed = called(*WISH, "--teacher-accuracy", "20=0.8", "--teacher-accuracy", "200=0.93", "--json")
    found = json.loads(printed.stdout)
    assert "20 rows: 80.0%, 200 rows: 93.0%" in found["assumptions"][0]
    assert found["possible"]
    assert found["obstacle"] is None
    assert found["epsilon"] <= 3


def test_public_votes_are_read_from_files(called, tmp_path):
    rng = np.random.default_rng(0)
    for size, share in ((20, 0.8), (100, 0.9)):
        easy = np.clip(rng.normal(share, 0.1, 60), 0, 1)
        counts = rng.multinomial(50, np.column_stack([easy, (1 - easy) / 2, (1 - easy) / 2]))
        np.savez(tmp_path / f"{size}.npz", counts=counts, labels=np.zeros(60, dtype=int))
    files = ("--proxy-votes", tmp_path / "20.npz", "--proxy-votes", tmp_path / "100.npz")
    found = json.loads(called(*WISH, *files, "--proxy-rows", 20, "--proxy-rows", 100, "--json").stdout)
    assert "50 teachers of 20 rows" in found["assumptions"][0]
    assert "--proxy-rows" in refusal(called(*WISH, *files), 1)
    of_two = (
        "plan-votes",
        "--epsilon",
        3,
        "--rows",
        5000,
        "--classes",
        2,
        *files,
        "--proxy-rows",
        20,
        "--proxy-rows",
        100,
    )
    assert "--proxy-votes must be on 2 classes" in refusal(called(*of_two), 2)
    assert "`--proxy-rows`" in refusal(called(*WISH, *files, "--proxy-rows", 20, "--proxy-rows", 0), 2)
    assert "once per --proxy-votes" in refusal(called(*WISH, *files, "--proxy-rows", 20), 2)
    assert "Give one of them" in refusal(called(*WISH, *files, "--teacher-accuracy", "20=0.8"), 2)


def test_the_frontier_is_a_figure(called, tmp_path):
    pytest.importorskip("matplotlib")
    printed = called(*WISH, "--output", tmp_path / "out", "--json")
    assert printed.returncode == 0, printed.stderr
    assert json.loads((tmp_path / "out" / "plan.json").read_text()) == json.loads(printed.stdout)
    assert (tmp_path / "out" / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "out" / "plan.svg").read_text()


def test_without_matplotlib_the_plan_is_written_and_the_figure_missed(called, tmp_path, monkeypatch):
    monkeypatch.setattr("tutelage.cli.plan_votes.find_spec", lambda name: None)
    printed = called(*WISH, "--output", tmp_path / "out", "--json")
    assert printed.returncode == 0, printed.stderr
    assert "tutelage[report]" in printed.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"plan.json", "written-files.json"}


def test_an_output_that_is_no_folder_is_refused_before_planning(called, tmp_path, monkeypatch):
    monkeypatch.setattr("tutelage.cli.plan_votes.make_plan", None)
    (tmp_path / "out").touch()
    assert "--output must be a folder" in refusal(called(*WISH, "--output", tmp_path / "out"), 2)


def test_an_impossible_wish_says_why_and_what_would_do(called):
    hospitals = ("plan-votes", "--epsilon", 1, "--rows", 2000, "--classes", 2, "--teachers", 10, "--queries", 50)
    printed = called(*hospitals, "--teacher-accuracy", "200=0.95")
    text = " ".join(printed.stdout.split())
    assert "Infeasible: 50 answers at ε = 1 take so much noise" in text
    assert re.search(r"it would take .*ε of at least [\d.]+; or at least [\d,]+ teachers of as many rows each", text)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--teacher-accuracy", "0.8"), "must be ROWS=SHARE"),
        (("--teacher-accuracy", "20=1.8"), "above chance"),
        (("--teachers", 3000), "--teachers must be at most 1,666, so that 5,000 rows give each one row"),
        (("--public-rows", 10), "at most the 10 public rows"),
        (
            ("--teacher-accuracy", "inf=0.8"),
            "--teacher-accuracy must hold, by finite numbers of rows above 0, shares above chance",
        ),
        (("--label-accuracy", 0.2), "--label-accuracy must be"),
        (("--queries", 0), "--queries must be"),
        (("--delta", 0), "--delta must"),
        (("--classes", 1), "`--classes`"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(called, arguments, sentence):
    assert sentence in refusal(called(*WISH, *arguments), 2)


def test_a_run_with_the_planned_settings_keeps_the_planned_epsilon(called, tmp_path):
    digits = load_digits()
    np.savez(tmp_path / "private.npz", X=digits.X_train, y=digits.y_train)
    np.savez(tmp_path / "public.npz", X=digits.X_test)
    found = json.loads(
        called(
            "plan-votes", "--epsilon", 2, "--rows", len(digits.X_train), "--classes", 10, "--queries", 15, "--json",
            "--teacher-accuracy", "30=0.7", "--teacher-accuracy", "120=0.83",
        ).stdout
    )  # fmt: skip
    printed = called(
        "plan-votes", "--epsilon", 2, "--rows", len(digits.X_train), "--classes", 10, "--queries", 15,
        "--teacher-accuracy", "30=0.7", "--teacher-accuracy", "120=0.83",
    ).stdout  # fmt: skip
    sections = printed[printed.index("[teachers]") :]
    settings = tomllib.loads(sections)
    text = sections.replace("[teachers]", '[teachers]\nestimator = "tutelage.teachers.ClassMeans"')
    text = text.replace("[public]", '[public]\nfile = "public.npz"')
    text += f'\n[private]\nfile = "private.npz"\nclasses = {list(range(10))}\n[output]\nfolder = "out"\n'
    (tmp_path / "config.toml").write_text(text)
    ran = called("run", "config.toml", "--json", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    card = json.loads(ran.stdout)
    assert card["public_epsilon"] == pytest.approx(found["epsilon"])
    assert card["public_epsilon"] <= 2
    assert card["teachers"] == settings["teachers"]["number"]
    assert card["findings"] == []


# What a run objects to


CHECKED = "threshold = 16\nsigma_threshold = 12.0\nsigma = 12.0"


@pytest.fixture
def folder(tmp_path):
    write_people(tmp_path)
    configure(tmp_path, ("sigma = 2.0", "sigma = 12.0"))
    return tmp_path


@pytest.mark.usefixtures("repeatable")  # a student of noisier labels may be no better than the majority
def test_ordinary_settings_are_not_objected_to(called, folder):
    ran = called("run", "config.toml", cwd=folder)
    assert ran.stderr == ""
    assert "Objections" not in ran.stdout
    assert json.loads((folder / "out" / "card.json").read_text())["findings"] == []


def test_objections_are_said_before_and_filed(called, folder):
    configure(folder, ('name = "gnmax"', 'name = "confident"'), ("sigma = 2.0", CHECKED))
    ran = called("run", "config.toml", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("tutelage: danger: The threshold of 16 votes is above the 15 teachers") == 1
    assert "threshold-above-teachers (danger)" in ran.stdout
    findings = json.loads((folder / "out" / "card.json").read_text())["findings"]  # with noise, of the student too
    assert ("threshold-above-teachers", "danger") in [(finding["code"], finding["severity"]) for finding in findings]


def test_what_is_odd_about_the_private_rows_is_said_to_their_owner_alone(called, folder):
    own = {"city": ["bergen", *["oslo"] * 11], "age": ["", *["7"] * 11], "patient": [f"p{i}" for i in range(12)]}
    write_rows(folder / "private.csv", 12, 1, extra=own)
    write_rows(folder / "public.csv", 120, 2, extra={"city": ["oslo"] * 120})
    configure(folder, ("sigma = 2.0", "sigma = 12.0"), ("delta = 1e-5", "delta = 1e-2"))
    ran = called("run", "config.toml", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    fewer, empty, unknown = ran.stderr.splitlines()
    assert "warning: There are fewer than 3 people per teacher" in fewer
    assert "Private rows have empty cells in: age." in empty
    assert "Private rows have values that no public row has in: city." in unknown
    for left in (folder / "out").glob("card.*"):
        assert not any(word in left.read_text() for word in ("empty cells", "no public row has", "bergen"))


def test_empty_cells_of_arrays_are_named_by_their_columns(called, folder):
    cells = np.random.default_rng(0).uniform(size=(300, 2))
    np.savez(folder / "public.npz", X=cells[:120], ill=cells[:120, 0] > 0.5)
    cells[7, 1] = np.nan
    ids = np.arange(300)
    np.savez(folder / "private.npz", X=cells, ill=cells[:, 0] > 0.5, patient=ids)
    configure(
        folder, ("private.csv", "private.npz"), ("public.csv", "public.npz"), ("sigma = 2.0", "sigma = 12.0"),
        ('["no", "yes"]', '["False", "True"]'),
    )  # fmt: skip
    assert "Private rows have empty cells in: column 1." in called("run", "config.toml", cwd=folder).stderr


def test_objections_come_before_anything_is_spent(called, folder, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("tutelage.estimator.PATEClassifier.fit", refuse)
    configure(folder)
    ran = called("run", "config.toml", cwd=folder)
    assert ran.returncode == 130
    assert ran.stderr.startswith("tutelage: danger: ε = 22.8")
    assert not (folder / "private.csv.ledger").exists()


def test_settings_that_were_tuned_on_private_data_are_objected_to(called, folder):
    configure(folder, ("delta = 1e-5", 'delta = 1e-5\ntuned_on = "private"'), ("sigma = 2.0", "sigma = 12.0"))
    assert "tutelage: danger: Settings were chosen by looking" in called("run", "config.toml", cwd=folder).stderr
    (finding,) = json.loads((folder / "out" / "card.json").read_text())["findings"]
    assert finding["code"] == "tuned-on-private"
    configure(folder, ("delta = 1e-5", 'delta = 1e-5\ntuned_on = "votes"'))
    assert "`tuned_on` in [privacy]" in refusal(called("run", "config.toml", "--overwrite", cwd=folder), 2)


def test_how_many_people_there_are_is_not_on_the_card_where_it_is_private(called, folder):
    configure(folder, ("delta = 1e-5", "delta = 0.01"), ("sigma = 2.0", "sigma = 12.0"))
    by_patient = called("run", "config.toml", cwd=folder)
    assert "danger: δ = 0.01 is at least one over the number of people" in by_patient.stderr
    assert json.loads((folder / "out" / "card.json").read_text())["findings"] == []
    configure(
        folder, ("delta = 1e-5", "delta = 0.01"), ("sigma = 2.0", "sigma = 12.0"), ('"out"', '"rows"'),
        ('label = "ill"\nclasses', 'label = "ill"\nignore = ["patient"]\nclasses'), private="",
    )  # fmt: skip
    (folder / "private.csv.ledger").unlink()
    by_row = called("run", "config.toml", cwd=folder)
    assert by_row.returncode == 0, by_row.stderr
    (finding,) = json.loads((folder / "rows" / "card.json").read_text())["findings"]
    assert finding["code"] == "delta-too-large"
    assert "300" not in finding["reason"]
