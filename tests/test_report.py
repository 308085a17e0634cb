"""The test report: a noisy sum that says how good a student is on the people, and for whom."""

import csv
import itertools
import pickle
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import FITS_AGAIN
from tutelage import Ledger, PATEClassifier, PATERegressor, SimulationNoise
from tutelage.accounting import data_independent
from tutelage.accounting.filter import GaussianFilter
from tutelage.accounting.generalization import most_on_others, pairs_of, pairs_within
from tutelage.events import Composed, NoisySumGaussian
from tutelage.exceptions import InvalidDataError, InvalidParameterError, LedgerMismatchError
from tutelage.features import Schema
from tutelage.mechanisms import NoisySum
from tutelage.methods import NoisyMoments, TeacherVotes
from tutelage.methods.report import SHARE_OF_REPORT, sum_of_report
from tutelage.people.blocks import PeopleBlock
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.reporting import read_card
from tutelage.reporting.measured import ClassLayout
from tutelage.students import Moments, NoisySumClassifier
from tutelage.tables import read_batches

pytestmark = [
    FITS_AGAIN,
    pytest.mark.filterwarnings("ignore::tutelage.exceptions.BudgetContinuedWarning"),
    pytest.mark.filterwarnings("ignore::tutelage.exceptions.PreflightWarning"),
]
LITTLE_NOISE: dict[str, Any] = {"epsilon": 50.0, "noise": SimulationNoise(0)}
N = 3000
PERSON = PrivacyUnit("person", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)


def world(n: int = N, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    age, dose = rng.integers(20, 80, n), rng.normal(size=n)
    sex = rng.choice(["female", "male"], n, p=[0.3, 0.7])
    ill = age / 20 + dose + rng.normal(size=n) * np.where(sex == "male", 0.3, 1.5) > 3
    return {
        "age": age,
        "dose": dose,
        "sex": sex,
        "ill": np.where(ill, "yes", "no"),
        "person": np.arange(n) // 2,
    }


def without(table: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: cells for name, cells in table.items() if name not in names}


ROWS = world()
PUBLIC = without(world(400, seed=1), "ill", "person")
SCHEMA = Schema({"age": (20, 80), "dose": (-4.0, 4.0), "sex": ["female", "male"]})
MOMENTS = NoisyMoments(n_landmarks=60)


def fitted(rows: dict[str, Any] = ROWS, **more: Any) -> Any:
    of_fit = {
        name: more.pop(name) for name in ("groups", "report", "holdout", "y_public") if name in more
    }
    public = more.pop("X_public", PUBLIC)
    settings = {
        "classes": ["no", "yes"],
        "method": MOMENTS,
        "random_state": 0,
        "unit": "row",
        **more,
    }
    model = PATEClassifier(**settings)
    return model.fit(without(rows, "person"), "ill", X_public=public, **of_fit)


def as_if_exact(share: Any, truth: float) -> bool:
    return share.low <= truth <= share.high and abs(share.value - truth) < 0.01


@pytest.mark.parametrize("way", ["moments", "schema", "public labels"])
def test_with_hardly_any_noise_a_report_says_what_a_look_at_the_rows_would(way):
    settings: dict[str, Any] = {"groups": "sex", **LITTLE_NOISE}
    if way == "schema":
        settings |= {"columns": SCHEMA, "X_public": None, "method": None}
    elif way == "public labels":
        settings |= {"X_public": without(world(400, seed=1), "person"), "y_public": "ill"}
    model = fitted(**settings)

    predicted = model.predict(without(ROWS, "ill", "person"))
    is_right = predicted == ROWS["ill"]
    everybody, *by_group, _ = model.report_.groups
    assert as_if_exact(everybody.accuracy, is_right.mean())
    assert everybody.people.value == N
    for measures, sex in zip(by_group, ["female", "male"], strict=True):
        assert measures.group == f"sex = {sex}"
        assert as_if_exact(measures.accuracy, is_right[ROWS["sex"] == sex].mean())
    for measures in everybody.by_class:
        assert as_if_exact(measures.recall, is_right[ROWS["ill"] == measures.name].mean())
        assert as_if_exact(measures.precision, is_right[predicted == measures.name].mean())
    worst = model.report_.gaps[0]
    assert (worst.measure, worst.highest, worst.lowest) == (
        "accuracy",
        "sex = male",
        "sex = female",
    )
    assert worst.distance.low > 0


def test_a_report_of_a_number_says_how_far_off_predictions_are():
    rng = np.random.default_rng(2)
    age = rng.integers(20, 80, N)
    days = age / 10 + rng.normal(size=N)
    model = PATERegressor(columns=Schema({"age": (20, 80)}), target_range=(0, 10), **LITTLE_NOISE)
    model.fit({"age": age}, days)
    errors = np.abs(model.predict({"age": age}) - np.clip(days, 0, 10))
    clipped = np.minimum(errors, model.report_.largest_error)
    (everybody,) = model.report_.groups
    assert everybody.mean_absolute.value == pytest.approx(clipped.mean(), abs=0.02)
    assert everybody.root_mean_square.value == pytest.approx(np.sqrt((clipped**2).mean()), abs=0.02)
    low, _, high = model.predict_quantiles({"age": age}).T
    within = np.mean((low <= days) & (days <= high))
    assert everybody.covered.value == pytest.approx(within, abs=0.02)


USUAL: list[tuple[str, dict[str, Any], bool]] = [
    ("public rows", {}, True),
    ("schema", {"columns": SCHEMA, "X_public": None, "method": None}, True),
    ("declined", {"report": False}, False),
    ("public labels in the column", {"X_public": without(world(400, 1), "person")}, False),
    ("public labels", {"y_public": world(400, 1)["ill"]}, False),
    ("public labels, and asked", {"y_public": world(400, 1)["ill"], "report": True}, True),
    ("noise as given", {"method": NoisyMoments(60, mechanism=NoisySum(9.0))}, False),
    ("noise as given, and asked", {"method": NoisyMoments(60, mechanism=NoisySum(9.0)), "report": True}, True),
    ("votes", {"method": TeacherVotes(n_teachers=100, n_queries=20)}, False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "is_due"), [case[1:] for case in USUAL], ids=[case[0] for case in USUAL]
)
def test_a_report_is_made_where_no_public_row_has_a_label(settings, is_due):
    assert (fitted(**settings).report_ is not None) == is_due


def test_a_report_takes_its_share_of_the_budget_and_the_whole_stays_within_it():
    with_report, without_report = fitted(), fitted(report=False)
    *sums, report = [part.event for part in with_report.release_.event.flatten()]
    assert report.nonnegative
    costs = [data_independent.mu_squared(event) for event in (*sums, report)]
    assert costs[-1] / sum(costs) == pytest.approx(SHARE_OF_REPORT, rel=0.01)
    assert with_report.epsilon_.epsilon <= 1 >= without_report.epsilon_.epsilon
    assert with_report.mechanism_.noise_multiplier == pytest.approx(
        without_report.mechanism_.noise_multiplier / np.sqrt(1 - SHARE_OF_REPORT), rel=1e-3
    )


def test_a_repeated_fit_recalls_its_report_and_another_goal_does_not(tmp_path):
    shared = {"ledger": tmp_path / "budget.ledger", "budget": 3.0, "epsilon": 1.0}
    first = fitted(**shared)
    again = fitted(**shared)
    assert again.report_ == first.report_
    assert again.release_.cost == 0
    balanced = fitted(**shared, goal="balanced_accuracy")
    # The sums are remembered, and the report on another student is drawn: it has a cost of its own.
    assert 0 < balanced.release_.cost < 0.2 * first.release_.cost
    assert balanced.report_ != first.report_


def test_a_fit_that_ends_before_its_report_goes_on_and_pays_once(tmp_path, monkeypatch):
    path = tmp_path / "budget.ledger"
    ballots = "tutelage.methods.noisy_moments.sum_of_report"

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ballots, interrupted)
    with pytest.raises(KeyboardInterrupt):
        fitted(ledger=path)
    monkeypatch.undo()
    spent = Ledger.open(path).state().spent
    model = fitted(ledger=path)
    assert 0 < spent < model.ledger_.spent <= 1
    assert model.report_ is not None
    assert fitted(ledger=path).ledger_.spent == model.ledger_.spent


ROW = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 2))  # group, class, prediction
PERSON_OF_ROWS = st.lists(ROW, min_size=1, max_size=5)


@given(st.lists(PERSON_OF_ROWS, min_size=1, max_size=4), PERSON_OF_ROWS)
def test_a_replaced_person_moves_the_sum_by_no_more_than_is_proved(people, other):
    layout = ClassLayout(("a", "b"), ("x", "y", "z"))

    def total(rows_of: list[list[tuple[int, int, int]]]) -> Any:
        rows = np.array(list(itertools.chain(*rows_of)))
        whose = np.repeat(np.arange(len(rows_of)), [*map(len, rows_of)])
        block = PeopleBlock(rows, rows[:, 1], whose, rows[:, 0])
        return sum_of_report(layout, np.eye(3)[rows[:, 2]], block, PERSON).totals

    moved = total(people) - total([other, *people[1:]])
    assert (moved**2).sum() <= 2 * layout.norm_squared
    if len(people) > 1:
        removed = total(people) - total(people[1:])
        assert (removed**2).sum() <= layout.norm_squared


def test_all_bins_on_one_side_of_the_border_are_of_one_predicted_class():
    layout = ClassLayout(("",), ("no", "yes"), 10)
    chances = np.linspace(0, 1, 4001)
    rows = np.column_stack([1 - chances, chances])
    labels = np.arange(len(rows)) % 2
    block = PeopleBlock(rows, labels, np.arange(len(rows)))
    total = sum_of_report(layout, rows, block, PERSON).totals
    table, bins = layout.table(total)[0], layout.bins(total)[0]
    assert table[:, 0].tolist() == pytest.approx(bins[:, :5].sum(axis=1).tolist())
    assert table.sum() == pytest.approx(len(rows))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"groups": "height"}, "groups"),
        ({"groups": "age", "X_public": without(world(400, 1), "ill", "person")}, "1 to 20 public"),
        ({"groups": 3}, "name of a column"),
        ({"groups": "sex", "report": False}, "report"),
        ({"report": True, "method": TeacherVotes(n_teachers=10, n_queries=20)}, "report"),
        ({"report": "yes"}, "report"),
        ({"holdout": 0.9}, "holdout"),
        ({"holdout": 0.1}, "come with .entity_ids"),
        ({"holdout": 0.1, "report": False}, "holdout"),
        ({"groups": "sex", "report": np.bool_(False)}, "groups"),
    ],
)
def test_what_a_report_cannot_be_is_refused_in_one_sentence(settings, said):
    with pytest.raises(InvalidParameterError, match=said):
        fitted(**settings)


def test_a_column_of_groups_that_private_rows_lack_is_refused():
    with pytest.raises(InvalidDataError, match="height"):
        fitted(groups={"height": ["tall", "short"]})


@pytest.mark.parametrize("values", [["1", "2"], ["01", "02"], [1, 2]])
def test_the_cell_of_one_person_decides_no_group_of_another(values):
    """Where a reader makes text of numbers because of one cell, and the other way round."""
    pandas = pytest.importorskip("pandas")
    site = np.where(np.arange(N) % 3 == 0, "01", "02")
    groups = {"site": values}
    texts = without(ROWS, "person") | {"site": site.astype(object)}
    numbers = texts | {"site": site.astype(np.int64)}
    with_x = texts | {"site": np.append(site[:-1], "x").astype(object)}
    sums, refusals = [], list[str]()
    for table in (texts, numbers, with_x):
        try:
            model: Any = PATEClassifier(
                classes=["no", "yes"], method=MOMENTS, noise=SimulationNoise(0), unit="row"
            ).fit(pandas.DataFrame(table), "ill", X_public=PUBLIC, groups=groups)
        except InvalidDataError as error:
            refusals.append(str(error))
            continue
        sums.append(model.ballots_[-1].totals)
    assert all("One cell may have chosen" in said for said in refusals)
    longest = ClassLayout(("",), ("no", "yes"), 10).norm_squared
    for one, other in itertools.combinations(sums, 2):
        assert ((one - other) ** 2).sum() <= 2 * longest


def test_values_that_were_not_declared_are_one_group():
    model = fitted(groups={"sex": ["female"]}, **LITTLE_NOISE)
    groups = [measures.group for measures in model.report_.groups]
    assert groups == ["", "sex = female", "sex = other"]
    assert model.report_.groups[2].people.value == pytest.approx(
        np.sum(ROWS["sex"] == "male"), abs=5
    )


def test_people_with_several_rows_count_once():
    model = PATEClassifier(classes=["no", "yes"], method=MOMENTS, **LITTLE_NOISE)
    model.fit(ROWS, "ill", X_public=PUBLIC, entity_ids="person")
    everybody = model.report_.groups[0]
    assert everybody.people.value == pytest.approx(N / 2, abs=25)
    right = model.predict(without(ROWS, "ill", "person")) == ROWS["ill"]
    assert as_if_exact(everybody.accuracy, right.mean())


def test_rows_in_batches_give_the_report_of_rows_in_memory(tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "rows.parquet"
    pandas.DataFrame(ROWS).to_parquet(path)
    models = []
    for rows in (ROWS, read_batches(path, rows_at_once=700)):
        model = PATEClassifier(
            classes=["no", "yes"], method=MOMENTS, noise=SimulationNoise(3), random_state=0
        )
        models.append(model.fit(rows, "ill", X_public=PUBLIC, entity_ids="person", groups="sex"))
    assert models[0].report_ == models[1].report_
    assert len(models[0].report_.groups) == 4


def test_a_report_is_public():
    model = fitted(groups="sex")
    assert pickle.loads(pickle.dumps(model)).report_ == model.report_  # noqa: S301


def test_a_card_prints_the_report_under_utility_and_bias_and_is_read_back(tmp_path):
    model = fitted(groups="sex", epsilon=8.0)
    card = model.card()
    model.save(tmp_path / "out", card)
    assert read_card(tmp_path / "out" / "card.json") == card
    page = card.as_markdown()
    everybody = model.report_.groups[0]
    value, low, high = everybody.accuracy.value, everybody.accuracy.low, everybody.accuracy.high
    accuracy = f"{value:.1%} ({low:.1%} to {high:.1%})"
    first, _, rest = page.partition("### Utility")
    utility, _, bias = rest.partition("### Bias")
    assert f"{accuracy} on the people who taught it, by a noisy sum" in first
    assert f"| Accuracy | {accuracy} |" in utility
    assert "sex = female" in bias
    assert "The largest difference in accuracy" in bias
    assert "measures no groups" not in page
    model = PATEClassifier(8.0, ["no", "yes"], method=MOMENTS)
    model.fit(ROWS, "ill", X_public=PUBLIC, entity_ids="person", holdout=0.3)
    apart = model.card().as_markdown()
    assert "on people who had no part in it" in apart
    assert "A student may do better" not in apart
    assert "A student may do better" in page


def test_a_card_of_a_number_prints_its_errors():
    rng = np.random.default_rng(2)
    age = rng.integers(20, 80, N)
    model = PATERegressor(columns=Schema({"age": (20, 80)}), target_range=(0, 10), epsilon=3.0)
    page = model.fit({"age": age}, age / 10 + rng.normal(size=N)).card().as_markdown()
    for name in ("Mean absolute error", "Root of the mean squared error", "R²"):
        assert f"| {name} | " in page
    assert "by a noisy sum (95 % interval)" in page


def test_a_configuration_names_groups_and_the_summary_prints_the_accuracy(called, tmp_path):
    table = ROWS | {"ill": ROWS["ill"]}
    write_csv(tmp_path / "private.csv", table)
    write_csv(tmp_path / "public.csv", PUBLIC)
    (tmp_path / "run.toml").write_text(
        """
[private]
file = "private.csv"
entity = "person"
[public]
file = "public.csv"
[target]
column = "ill"
classes = ["no", "yes"]
groups = "sex"
[privacy]
epsilon = 4.0
holdout = 0.2
[output]
folder = "out"
"""
    )
    done = called("run", tmp_path / "run.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "student accuracy on the people" in done.stdout
    card = read_card(tmp_path / "out" / "card.json")
    measured: Any = card.student.judged.on_people
    assert measured.holdout == 0.2
    assert [one.group for one in measured.groups[1:]] == [
        "sex = female",
        "sex = male",
        "sex = other",
    ]


def write_csv(path: Path, table: dict[str, Any]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(
            zip(*(np.asarray(cells).tolist() for cells in table.values()), strict=True)
        )


# How far a student may do better on the people who taught it


def test_the_loss_on_others_is_within_the_bound_for_every_mechanism_of_a_small_world():
    """All students of two people with one bit each, and all randomized responses of a few ε, by enumeration."""
    for chance, epsilon in itertools.product([0.1, 0.5, 0.8], [0.1, 0.7, 2.0]):
        kept = exp(epsilon) / (1 + exp(epsilon))
        taught = others = 0.0
        for first, second, other in itertools.product([0, 1], repeat=3):
            bits = [chance if bit else 1 - chance for bit in (first, second, other)]
            for student in (
                0,
                1,
            ):  # says the randomized bit of the first person, wrong where the bit differs
                p = float(np.prod(bits)) * (kept if student == first else 1 - kept)
                taught += p * (student != first)
                others += p * (student != other)
        assert others <= most_on_others(taught, [(epsilon, 0.0)]) + 1e-12


def test_the_bound_is_that_of_gaussian_differential_privacy():
    from scipy.stats import norm

    event = Composed((NoisySumGaussian(7500.0, 10**6, 50, PERSON),))
    mu = np.sqrt(data_independent.mu_squared(event))
    for loss in (0.01, 0.14, 0.4):
        exact = norm.cdf(norm.ppf(loss) + mu)
        assert exact <= most_on_others(loss, pairs_of(event)) <= exact * 1.05
    limit = GaussianFilter(1.0, 1e-5)
    assert most_on_others(0.14, pairs_within(limit)) == pytest.approx(
        norm.cdf(norm.ppf(0.14) + np.sqrt(limit.mu_squared)), rel=0.05
    )
    raised = limit.larger_budget(2.0)
    assert pairs_within(raised) == [(2.0, raised.delta)]


def test_a_report_says_how_far_its_optimism_may_go():
    measured = fitted().report_
    wrong = 1 - measured.groups[0].accuracy.value
    assert 0 < measured.optimism < 0.1 + wrong
    more = fitted(epsilon=4.0).report_
    assert more.optimism > measured.optimism


# People who only test the student


def test_a_report_is_added_to_a_release_but_other_people_do_not_teach_under_its_name(tmp_path):
    def made(**settings: Any) -> Any:
        model = PATEClassifier(
            classes=["no", "yes"], method=MOMENTS, epsilon=1.0, budget=4.0, ledger=tmp_path / "l"
        )
        return model.fit(
            ROWS, "ill", X_public=PUBLIC, entity_ids="person", release="january", **settings
        )

    first, again = made(report=False), made(report=True)
    assert first.report_ is None
    assert again.report_ is not None
    assert np.array_equal(first.predict_proba(PUBLIC), again.predict_proba(PUBLIC))
    spent = Ledger.open(tmp_path / "l").state().spent
    with pytest.raises(LedgerMismatchError, match="begun with other settings"):
        made(holdout=0.1)
    assert Ledger.open(tmp_path / "l").state().spent == spent


def test_those_who_only_test_have_no_part_in_the_student():
    def made(table: dict[str, Any]) -> Any:
        model = PATEClassifier(
            classes=["no", "yes"], method=MOMENTS, epsilon=50.0, noise=SimulationNoise(0)
        )
        return model.fit(table, "ill", X_public=PUBLIC, entity_ids="person", holdout=0.2)

    rows = ROWS
    first = made(rows)
    apart = first.report_.groups[0].people.value
    n_people = N / 2
    assert apart == pytest.approx(0.2 * n_people, abs=4 * np.sqrt(n_people * 0.16))
    assert first.n_teachers_ == pytest.approx(n_people - apart, abs=25)
    # Whoever has other labels changes the report or the student, and never both.
    n_tested = n_taught = 0
    for person in range(40):
        changed = dict(rows)
        is_this = rows["person"] == person
        changed["ill"] = np.where(is_this, np.where(rows["ill"] == "yes", "no", "yes"), rows["ill"])
        other = made(changed)
        teaches = any(
            not np.array_equal(one.totals, two.totals)
            for one, two in zip(first.ballots_[:-1], other.ballots_[:-1], strict=True)
        )
        tests = not np.array_equal(first.ballots_[-1].totals, other.ballots_[-1].totals)
        if teaches:  # another student may see the others in another way
            n_taught += 1
            continue
        assert tests
        n_tested += 1
        if n_taught > 3 and n_tested > 1:
            break
    assert n_taught > 3
    assert n_tested > 1


# Without a person's own ballots


def moments_of(
    X: Any, y: Any, students: list[NoisySumClassifier], people: Any, n: int, start: Any = None
) -> list[Moments]:
    """Return a part 1/n of the sum of the people's mean ballots, whose rows are shortened, per student."""
    means = []
    of_person = np.eye(n)[people]  # (rows, people)
    for student in students:
        wrong = student.residuals(X, y, start)
        lengths = np.linalg.norm(X, axis=1) * np.linalg.norm(wrong, axis=1)
        shorter = np.minimum(1, 0.3 / np.maximum(lengths, 1e-12))
        n_rows = np.maximum(of_person.sum(axis=0), 1)
        weights = (of_person / n_rows).sum(axis=1)[:, None]
        values = (wrong * shorter[:, None] * weights).T @ X / n
        means.append(Moments(values, 0.01, 0.3))
    return means


def rows_of_people(n_rows: int, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Return short rows that are alike where they are of one person, what their classes follow from, and the people."""
    people = np.sort(rng.integers(n_rows // 2, size=n_rows))
    _, people = np.unique(people, return_inverse=True)
    X = rng.normal(size=(n_rows, 6)) + 2 * rng.normal(size=(n_rows, 6))[people]
    X /= 1.2 * np.linalg.norm(X, axis=1).max()
    return X, X[:, 0] * 6 + rng.normal(size=n_rows), people


@pytest.mark.parametrize("with_start", [False, True])
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_own_ballots_move_scores_as_far_as_a_fit_without_them_says(
    rounds, n_classes, with_start, monkeypatch
):
    """What else follows from the moments is held as it is: the student is linear in its moments then."""
    where = "tutelage.students.noisy_sums."
    monkeypatch.setattr(f"{where}_likeliest_prior", lambda _, spread, __: 3.0 + 0 * spread)
    monkeypatch.setattr(f"{where}_part_of_step", lambda *_: 0.7)
    monkeypatch.setattr(NoisySumClassifier, "_share_within", lambda *_: 0.9)
    rng = np.random.default_rng(5)
    X, towards, people = rows_of_people(400, rng)
    y = np.clip(towards.round() + 1, 0, n_classes - 1).astype(int)
    public = X[:200] + 0.01 * rng.normal(size=(200, 6))
    classes = np.arange(n_classes)
    n_people = people.max() + 1
    start = of_public = None
    if with_start:
        start = rng.dirichlet(np.ones(n_classes), 400) - 1 / n_classes
        of_public = start[:200]

    def fit(moments: list[Moments], starts: Any = ()) -> Any:
        return NoisySumClassifier().fit_moments(
            public, moments, n_rows=n_people, classes=classes, starts=starts, start=of_public
        )

    students = [fit([])]
    while len(students) < rounds:
        students.append(fit(moments_of(X, y, students, people, n_people, start)))
    starts = [student.coef_ for student in students]
    whole = moments_of(X, y, students, people, n_people, start)
    student = fit(whole, starts)
    own = student.own_effect_.on_scores(X, y, people, start)
    assert len(own) == 1 + with_start
    for person in range(0, n_people, 15):
        others = people != person
        of_start = None if start is None else start[others]
        rest = moments_of(X[others], y[others], students, people[others], n_people, of_start)
        without = fit(rest, starts)
        moved = [X @ (student.coef_ - without.coef_)]
        if with_start:
            moved.append(X @ (student.whole_coef_ - without.whole_coef_))
        for mine, expected in zip(own, moved, strict=True):
            assert mine[~others] == pytest.approx(expected[~others], rel=1e-3, abs=5e-6)


@given(st.integers(0, 2**32 - 1), st.integers(2, 20))
def test_the_own_effect_of_a_person_does_not_depend_on_others_to_the_last_bit(seed, n_rows):
    rng = np.random.default_rng(seed)
    X, towards, people = rows_of_people(2 * n_rows, rng)
    y, classes = (towards > 0).astype(int), np.arange(2)
    nothing = NoisySumClassifier().fit_moments(X, [], n_rows=n_rows, classes=classes)
    student: Any = NoisySumClassifier().fit_moments(
        X, moments_of(X, y, [nothing], people, people.max() + 1), n_rows=n_rows, classes=classes
    )
    (together,) = student.own_effect_.on_scores(X, y, people)
    for person in np.unique(people):
        rows = np.flatnonzero(people == person)
        (alone,) = student.own_effect_.on_scores(X[rows], y[rows], people[rows])
        assert np.array_equal(alone, together[rows])
        (backward,) = student.own_effect_.on_scores(X[rows][::-1], y[rows][::-1], people[rows])
        assert np.array_equal(backward[::-1], alone)


@pytest.mark.rest
def test_a_report_is_not_flattered_by_the_people_who_taught():
    """Few people and many features: the student is several points better on them, and the report does not say so."""
    flattered, told = [], []
    for seed in range(8):
        rows, others = world(500, 10 + seed), world(20_000, 100 + seed)
        model = PATEClassifier(
            classes=["no", "yes"],
            method=NoisyMoments(n_landmarks=300),
            epsilon=60.0,
            noise=SimulationNoise(seed),
            random_state=seed,
            unit="row",
        )
        public = without(world(600, 200 + seed), "ill", "person")
        model.fit(without(rows, "person"), "ill", X_public=public)

        def right(table: dict[str, Any], model: Any = model) -> float:
            predicted = model.predict(without(table, "ill", "person"))
            return float(np.count_nonzero(predicted == table["ill"]) / len(predicted))

        fresh = right(others)
        flattered.append(right(rows) - fresh)
        told.append(model.report_.groups[0].accuracy.value - fresh)
    assert np.mean(flattered) > 0.015
    assert abs(np.mean(told)) < 0.6 * np.mean(flattered)
