"""``tutelage plan`` as a user meets it, and as ``tutelage run`` uses it."""

import io
import json
import sys
import tomllib
from typing import Any

import numpy as np
import pytest

from test_cli import refusal, succeeded
from test_cli_init import Terminal
from tutelage.planning.trials import Trial
from tutelage.reporting import read_card
from tutelage.terms import Asked

pytestmark = [pytest.mark.rest, pytest.mark.usefixtures("short_trials")]
NAMED = '[method]\nname = "noisy-moments"\n'


def write(path, n, seed=0, *, entity=False):
    """Write a table of two classes that no line parts, so that people know better than a few public labels."""
    lines = ["f0,f1,kind" + ",patient" * entity]
    for place, (one, other) in enumerate(
        np.random.default_rng(seed).uniform(-1, 1, size=(n, 2)).tolist()
    ):
        lines.append(
            f"{one},{other},{'yes' if one * other > 0 else 'no'}" + f",p{place // 2}" * entity
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def configuration(folder, more="", private=""):
    write(folder / "private.csv", 600, 1, entity=True)
    write(folder / "public.csv", 230, 2)
    config = folder / "run.toml"
    private = private or 'unit = "row"\n'
    config.write_text(
        f'[private]\nfile = "private.csv"\n{private}ignore = ["patient"]\n'
        '[target]\ncolumn = "kind"\nclasses = ["no", "yes"]\n'
        '[public]\nfile = "public.csv"\nlabel = "kind"\nevaluate_last = 60\n'
        f'[privacy]\nepsilon = 1.0\ndelta = 1e-5\n[output]\nfolder = "out"\n{more}'
    )
    return config


def test_labeled_public_rows_give_a_method_and_an_interval(called, tmp_path):
    public = write(tmp_path / "public.csv", 190)
    target = "plan", "--epsilon", 1, "--people", 2000, "--public", public, "--label", "kind"
    printed = succeeded(called(*target, "--liars", 10, "--output", tmp_path / "out"))
    text = " ".join(printed.stdout.split())
    assert "The student is expected to reach" in text
    assert "in nine of ten runs" in text
    assert "If any 10 people cast whatever they like: with " in text
    assert (
        tomllib.loads(printed.stdout[printed.stdout.index("[method]") :])["privacy"]["epsilon"]
        == 1.0
    )
    found = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert "public labels alone" in (tmp_path / "out" / "plan.html").read_text()
    assert found["evidence"] == "public-labels"
    assert found["liars"] == 10
    assert found["recommended"]["interval"][0] < found["recommended"]["expected"]


@pytest.fixture
def trials(monkeypatch):
    """A function that says what trials find, so that none takes time; it returns the methods that are tried."""

    def found(share, alone, people=100):
        methods: list[Any] = []
        trial, start = (Trial((one, one), (one, one), 0.0, people) for one in (share, alone))
        monkeypatch.setattr(
            "tutelage.planning.planner.run_trials",
            lambda method, *_, **__: methods.append(method) or trial,
        )
        monkeypatch.setattr("tutelage.planning.planner.labels_alone", lambda _: start)
        return methods

    return found


# By chance: the noise is real.
@pytest.mark.filterwarnings("ignore::tutelage.exceptions.OneClassWarning")
def test_a_hopeless_target_ends_with_another_code_and_stops_a_run_before_it_spends(
    called, tmp_path, trials
):
    trials(0.3, 0.3)
    printed = called("plan", "--for", config := configuration(tmp_path))
    assert printed.returncode == 3
    text = " ".join(printed.stdout.split())
    assert "Infeasible: With ε = 1 and 600 people, no method is expected to beat" in text
    assert "[method]" not in printed.stdout
    text = refusal(called("run", config), 2)
    assert "no method is expected to beat" in text
    assert "nothing was spent" in text
    assert not list(tmp_path.glob("*.ledger"))
    assert called("run", configuration(tmp_path, NAMED)).returncode == 0


@pytest.mark.parametrize(("options", "said"), [
    (("--people", 10), "--epsilon is missing"),
    (("--epsilon", 1, "--classes", 2, "--public-rows", 9), "--people is missing"),
    (("--epsilon", 1, "--people", 10, "--public-rows", 9), "--classes"),
    (("--epsilon", 1, "--people", 10, "--stand-in", "x.csv"), "--stand-in needs --label"),
])  # fmt: skip
def test_what_is_missing_is_named(called, options, said):
    assert said in refusal(called("plan", *options), 2)


def test_a_plan_is_of_one_of_several_releases_that_share_a_budget(called, tmp_path, trials):
    trials(0.9, 0.6)
    config = configuration(tmp_path, NAMED)
    config.write_text(config.read_text().replace("epsilon = 1.0", "budget = 1.0\nreleases = 4"))
    each = Asked(None, 1.0, 4, 1e-5, given=False).each
    assert f"target: ε = {each:.10g} at" in succeeded(called("plan", "--for", config)).stdout


def test_a_plan_takes_the_classes_of_public_labels(called, tmp_path, trials):
    trials(0.9, 0.6)
    config = configuration(tmp_path)
    config.write_text(config.read_text().replace('classes = ["no", "yes"]\n', ""))
    assert "target: ε = 1 at" in succeeded(called("plan", "--for", config)).stdout


def test_a_configuration_is_checked_against_the_plan(called, tmp_path, trials):
    trials(0.9, 0.6)
    config = configuration(tmp_path, '[method]\nname = "capped-votes"\nvotes = 3\n')
    text = " ".join(succeeded(called("plan", "--for", config)).stdout.split())
    assert (
        "With the settings that you named (few votes per person), the student is expected to reach"
        in text
    )
    assert "cannot be combined with --for" in refusal(
        called("plan", "--for", config, "--classes", 2), 2
    )


def test_the_user_decides_by_an_option_or_a_key_where_a_gain_is_small(
    called, tmp_path, monkeypatch, trials
):
    trials(0.3, 0.627, people=0)
    monkeypatch.setattr("tutelage.planning.planner.gain_over_labels", lambda _, **__: 0.003)
    config = configuration(tmp_path)
    planned = called("plan", "--for", config, "--output", tmp_path / "plan")
    assert planned.returncode == 4
    said = " ".join(planned.stdout.split())
    assert "Undecided: With ε = 1 and 600 people, a release is expected to beat" in said
    assert "30.0%" not in planned.stdout + (tmp_path / "plan" / "plan.html").read_text()

    def unspent(typed):
        monkeypatch.setattr(sys, "stdin", typed)
        left = called("run", config)
        assert (left.returncode, left.stdout.strip()) == (2, "")
        said = " ".join(left.stderr.split())
        assert ("Spend ε = 1 on this release? [y/N]" in said) == isinstance(typed, Terminal)
        assert "by about 0.3 points: too little" in said
        assert "nothing was spent. To release anyway, pass --despite-plan." in said
        assert not list(tmp_path.glob("*.ledger"))

    unspent(None)
    unspent(io.StringIO("y\n"))  # a pipe is nobody
    unspent(Terminal("\n"))
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert "Spend ε = 1 on this release? [y/N]" in succeeded(called("run", config)).stderr
    monkeypatch.setattr(sys, "stdin", None)
    (tmp_path / "private.csv.ledger").unlink()
    succeeded(called("run", config, "--despite-plan", "--overwrite"))


def test_what_a_ledger_refuses_is_refused_before_a_plan_and_a_planned_release_is_repeated_without_one(
    called, tmp_path, monkeypatch, trials
):
    methods = trials(0.9, 0.6)
    config = configuration(tmp_path, private='entity = "patient"\npeople = 300\n')
    config.write_text(
        text := config.read_text().replace("epsilon = 1.0", "budget = 1.0\nreleases = 2")
    )

    assert "plan: Use " in " ".join(
        succeeded(called("run", config, "--as", "January")).stderr.split()
    )
    assert methods
    assert not any(one.needs.shards for one in methods)  # no teachers are tried for a name
    planned = read_card(tmp_path / "out" / "January" / "card.json").release
    with monkeypatch.context() as patched:
        patched.setattr(
            "tutelage.planning.planned.plan", lambda *_, **__: pytest.fail("it came to a plan")
        )
        (tmp_path / "out").rename(tmp_path / "once")
        config.write_text(f"{text}[run]\nseed = 7\n")
        assert "begun with other settings" in refusal(called("run", config, "--as", "January"), 1)
    config.write_text(text.replace("people = 300", "people = 290"))
    for name, spent in (
        ("January", {"January": 0.5}),
        ("February", {"January": 1.0, "February": 0.5}),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(
                "tutelage.planning.planned.plan", lambda **_: pytest.fail("it was planned again")
            )
            done = succeeded(called("run", config, "--as", name))
        assert "as in an earlier release of this question" in done.stderr
        card = read_card(tmp_path / "out" / name / "card.json")
        assert (card.release.mechanism, card.release.selection) == (
            planned.mechanism,
            planned.selection,
        )
        assert card.budget.cohorts == pytest.approx(spent, rel=1e-2)
