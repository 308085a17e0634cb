"""Labels of public rows: a model of them, ballots that correct it, and a sum that says how much to believe of each."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from blobs import LABELS, PRIVATE, PUBLIC, TEST, TRUE
from tutelage import PATEClassifier, SimulationNoise
from tutelage.audit import PrivateRows, check_fit, pate_canaries
from tutelage.exceptions import (
    BudgetContinuedWarning,
    BudgetExceededError,
    InvalidDataError,
    InvalidParameterError,
)
from tutelage.features import PublicFeatureMap, PublicScaling
from tutelage.features.scored import ScoredRows, chances_of, log_chances
from tutelage.mechanisms import NoisySum
from tutelage.methods import CappedVotes, NoisyMoments
from tutelage.methods.noisy_moments import _sum_of_stacking
from tutelage.methods.over_releases import Turn
from tutelage.methods.rehearsal import PublicLabels, rehearse
from tutelage.methods.sums import PeopleReady
from tutelage.partition import Shards
from tutelage.people.blocks import PeopleBlock
from tutelage.people.memory import PeopleInMemory
from tutelage.privacy import ONE_TEACHER
from tutelage.students import Moments, NoisySumClassifier, export_onnx, load_student
from tutelage.students.stacking import (
    _STEPS,
    N_STACKED,
    Stacking,
    _in_steps,
    joint_norm,
    numbers_of,
)

RNG = np.random.default_rng(4)
NEAR = ((PUBLIC[:, None] - TEST[None]) ** 2).sum(axis=2).argmin(axis=1)
PUBLIC_LABELS = np.asarray(TRUE)[NEAR]  # nearly right


def of(**changes: Any) -> Any:
    settings = {
        "epsilon": 1.0,
        "random_state": 0,
        "noise": SimulationNoise(0),
        "classes": sorted(set(LABELS)),
    }
    return PATEClassifier(**{**settings, **changes})


def fitted(labels: Any = PUBLIC_LABELS, **changes: Any) -> Any:
    return of(**changes).fit(PRIVATE[:1500], LABELS[:1500], X_public=PUBLIC, y_public=labels)


def seen_rows(n_rows: int, n_classes: int, rng: np.random.Generator) -> np.ndarray:
    vectors = rng.normal(size=(n_rows, 4))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1)
    return np.hstack([vectors, log_chances(rng.dirichlet(np.full(n_classes, 0.3), n_rows))])


def stacking(n_classes: int, rng: np.random.Generator) -> Stacking:
    """Return the ballot after two rounds of few people, whose own ballots move their scores far."""
    seen = seen_rows(60, n_classes, rng)
    moments = [Moments(rng.normal(size=(n_classes, 4)) / 4, 0.01, 0.7) for _ in range(2)]
    student: Any = NoisySumClassifier()
    student.fit_moments(
        seen[:, :4],
        moments,
        n_rows=20,
        classes=np.arange(n_classes),
        start=chances_of(seen[:, 4:]) - 1 / n_classes,
    )
    return Stacking.of(student, seen)


@given(n_classes=st.integers(2, 7), seed=st.integers(0, 10_000))
def test_a_ballot_of_any_row_is_short_and_the_same_whatever_is_beside_it(n_classes, seed):
    rng = np.random.default_rng(seed)
    ballot, seen = stacking(n_classes, rng), seen_rows(25, n_classes, rng)
    seen[:5, :4] *= 1e3  # beyond what a vector can be: still no ballot is longer
    labels, person = rng.integers(n_classes, size=25), np.sort(rng.integers(9, size=25))

    def cast(rows):
        shown = ballot.scores_without(seen[rows], labels[rows], person[rows])
        return ballot.ballots(shown, labels[rows])

    rows = np.arange(25)
    whole = cast(rows)
    assert (whole.astype(object) ** 2).sum(axis=1).max() <= joint_norm(N_STACKED + n_classes) ** 2
    for one in np.unique(person):
        assert_array_equal(whole[person == one], cast(rows[person == one]))
        assert_array_equal(whole[person >= one], cast(rows[person >= one]))


@given(seed=st.integers(0, 10_000), replaced=st.booleans())
def test_one_person_moves_the_sum_by_one_ballot_whoever_that_is(seed, replaced):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 5))
    ballot, people = stacking(m, rng), np.sort(rng.integers(6, size=20))
    seen, labels, person = seen_rows(20, m, rng), rng.integers(m, size=20), rng.choice(people)

    def total(rows, classes, whose):
        def of_blocks(*parts):
            blocks = [
                PeopleBlock(rows[part], classes[part], whose[part]) for part in parts if part.any()
            ]
            return _sum_of_stacking(ballot, lambda block: block.rows, ONE_TEACHER, blocks).totals

        found = of_blocks(whose >= 0)
        assert_array_equal(of_blocks(whose < person, whose >= person), found)
        two_rows = 2 * numbers_of(ballot.n_weights)
        with patch("tutelage.methods.sums._NUMBERS_AT_ONCE", two_rows):
            assert_array_equal(of_blocks(whose >= 0), found)
        return found

    others = people != person
    after = total(seen[others], labels[others], people[others])
    if replaced:
        other = np.where(others, labels, (labels + 1) % m)
        after = total(np.where(others[:, None], seen, seen[::-1]), other, people)
    moved = float(np.linalg.norm((total(seen, labels, people) - after).astype(float)))
    assert moved <= (1 + replaced) * joint_norm(N_STACKED + m)


def test_the_numbers_of_a_ballot_are_gradient_and_gram_matrix_of_a_logistic_regression():
    rng = np.random.default_rng(1)
    ballot, seen = stacking(3, rng), seen_rows(1, 3, rng)
    scores = ballot._scores(seen)
    shown = _in_steps(ballot._design(scores), ballot.radius)[:, :, 0] / _STEPS
    sharp, soft = (
        chances / chances.sum()
        for chances in (np.exp(power * seen[0, -3:]) for power in (1.0, 0.7))
    )
    gradient = shown[1] - sharp @ shown
    mean = soft @ shown
    size = ballot.n_weights
    gram = 4 * (shown.T @ (soft[:, np.newaxis] * shown) - np.outer(mean, mean))
    cast = ballot.ballots(scores, np.array([1]))[0] * np.sqrt(2) / 2**16
    upper = np.triu_indices(size)
    expected = np.hstack([gradient, gram[upper] * np.where(upper[0] == upper[1], 1, np.sqrt(2))])
    np.testing.assert_allclose(cast, expected, atol=2e-3)
    assert np.linalg.norm(expected[:size]) <= 1 >= np.linalg.norm(expected[size:])


def lost_beside_the_start(seed: int, n_people: int = 100, n_features: int = 40) -> float:
    """Return how much less accurate than public labels, which know all there is, a release over nothing but noise is.

    There is next to no noise on the sums, and two rows of each person, which are the same.
    """
    rng = np.random.default_rng(seed)

    def world(n: int) -> tuple[np.ndarray, np.ndarray]:
        vectors = rng.normal(size=(n, n_features))
        ill = rng.uniform(0.2, 0.8, n)
        scores = log_chances(np.column_stack([1 - ill, ill]))
        seen = np.hstack([vectors / np.linalg.norm(vectors, axis=1, keepdims=True), scores])
        return seen, (rng.random(n) < ill).astype(np.int64)

    (public, known), (people, labels), (test, truth) = world(400), world(n_people), world(4000)
    shards = Shards.of_single_people(2 * n_people, np.repeat(np.arange(n_people), 2))
    public_labels = PublicLabels(public, public, known, 2, own=True)
    unchanged = PublicScaling(np.zeros(public.shape[1]), np.ones(public.shape[1]))
    steps = NoisyMoments(mechanism=NoisySum(1e-3))._rounds(
        public_labels.public(shards.unit, n_people, scored=True), unchanged, [Turn([], n_people)]
    )
    ready = PeopleReady(PeopleInMemory(np.repeat(people, 2, axis=0), np.repeat(labels, 2), shards))
    student = rehearse(steps, ready, SimulationNoise(seed)).student
    start = test[:, -2:].argmax(axis=1)
    return float(np.mean(start == truth) - np.mean(student.predict(test) == truth))


def test_few_people_without_noise_do_not_make_public_labels_worse():
    """A release that believes its people's own ballots loses 5.8 points here, with a standard error of 0.45.

    Without these it loses 0.3 ± 0.14 over twenty seeds; seeds are fixed, and others pass with a chance above 99 %.
    """
    assert np.mean([lost_beside_the_start(seed) for seed in range(8)]) < 0.015


@pytest.mark.parametrize("kind", ["linear", "trees"])
def test_scores_are_of_one_row_and_no_row_is_scored_by_its_own_label(kind):
    rows = RNG.normal(size=(400, 3))
    labels = RNG.integers(2, size=400)
    if kind == "trees":  # what no line tells apart; and cells are missing
        labels = (rows[:, 0] * rows[:, 1] > 0).astype(np.int64)
        rows[::7, 2] = np.nan
    seen = np.nan_to_num(rows)
    scored, apart = ScoredRows.learn(rows, _Filled(), seen, labels, 2)
    assert (scored.model.trees is not None) == (kind == "trees")
    whole = scored.transform(rows)
    for number in (0, 7, 399):
        assert_array_equal(scored.transform(rows[number : number + 1]), whole[number : number + 1])
    assert_array_equal(scored.transform(rows[::-1])[::-1], whole)
    right = np.mean((apart[:, -1] > apart[:, -2]) == labels)
    assert right > 0.8 if kind == "trees" else 0.4 < right < 0.6


@pytest.mark.parametrize("kind", ["linear", "trees", "both"])
def test_a_student_predicts_alike_in_onnx(kind, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(800, 4))
    straight, bent = {"linear": (1.0, 0.0), "trees": (0.0, 1.0), "both": (1.0, 1.5)}[kind]
    total = rows.sum(axis=1) * straight + rows[:, 1] * rows[:, 2] * bent
    labels = total + rng.logistic(scale=0.3, size=800) > 0
    known = 150 if kind == "linear" else 400  # trees need 200
    model = of(epsilon=3.0, classes=[False, True])
    model.fit(rows[:400], labels[:400], X_public=rows[-known:], y_public=labels[-known:])
    learned = model.public_model_.model
    assert (learned.linear is not None) == (kind != "trees")
    assert (learned.trees is not None) == (kind != "linear")
    path = str(export_onnx(model.whole_student(), tmp_path / "student.onnx"))
    labels, chances = onnxruntime.InferenceSession(path).run(None, {"rows": rows})
    np.testing.assert_allclose(chances, model.predict_proba(rows), atol=1e-5)
    assert np.mean(labels.astype(bool) == model.predict(rows)) > 0.99


class _Filled(PublicFeatureMap):
    def transform(self, X):
        return np.nan_to_num(X)


@pytest.mark.rest
def test_a_fit_is_better_than_its_ballots_and_costs_what_was_asked(tmp_path):
    ledger = tmp_path / "private.ledger"
    alone, both = fitted(None), fitted(ledger=ledger)
    assert both.score(TEST, TRUE) > alone.score(TEST, TRUE) - 0.01
    assert 0.9998 < both.epsilon_.epsilon <= 1.0
    with pytest.warns(BudgetContinuedWarning):
        again = fitted(ledger=ledger, noise=SimulationNoise(7))
    assert again.drawn_ == 0
    assert_array_equal(again.predict_proba(TEST), both.predict_proba(TEST))
    with pytest.raises(BudgetExceededError):  # other labels are another release
        fitted(np.roll(PUBLIC_LABELS, 1), ledger=ledger)
    assert_array_equal(
        load_student(both.save(tmp_path / "out")).predict_proba(TEST), both.predict_proba(TEST)
    )


def test_labels_that_are_wrong_about_the_people_are_put_right():
    wrong = (PUBLIC_LABELS + 1) % 3
    assert fitted(wrong, epsilon=3.0).score(TEST, TRUE) > 0.5 > np.mean(wrong == PUBLIC_LABELS)


def test_an_audit_is_of_the_sums_that_are_released():
    people, known = PrivateRows(PRIVATE[:400], np.asarray(LABELS[:400])), PUBLIC_LABELS[:150]
    found = check_fit(of(), people, PUBLIC[:150], y_public=known, draws=1_000, entities=2)[-1]
    assert (found.verdict, found.reason[:14]) == ("pass", "In 3 requests,")


@pytest.mark.parametrize(("labels", "changes", "said"), [
    (PUBLIC_LABELS[:-1], {}, "one label per public row"),
    (np.where(np.arange(len(PUBLIC)) == 3, 7, PUBLIC_LABELS), {}, "'7', which is not among"),
    (np.full(len(PUBLIC), LABELS[0]), {}, "two classes with two rows"),
    (PUBLIC_LABELS, {"method": CappedVotes()}, "CappedVotes, which does not learn from public labels"),
])  # fmt: skip
def test_labels_that_mean_nothing_are_refused(labels, changes, said):
    with pytest.raises((InvalidDataError, InvalidParameterError), match=said):
        fitted(labels, **changes)


def test_a_run_in_search_of_canaries_starts_from_the_labels_of_other_public_rows():
    model = of(epsilon=None, method=NoisyMoments(mechanism=NoisySum(1.0)))
    odd = {"X_canaries": PUBLIC[:20], "y_canaries": PUBLIC_LABELS[:20]}
    people = (PRIVATE[:600], LABELS[:600])
    score = pate_canaries(model, *people, **odd, X_public=PUBLIC[20:], y_public=PUBLIC_LABELS[20:])
    with patch.object(PATEClassifier, "fit", autospec=True, side_effect=PATEClassifier.fit) as fit:
        assert np.asarray(score(np.arange(20) < 10)).shape == (20,)
    given = fit.call_args_list[0].kwargs
    assert_array_equal(given["X_public"], PUBLIC)
    assert given["y_public"][:20].tolist() == [None] * 20
    assert_array_equal(given["y_public"][20:], PUBLIC_LABELS[20:])


@pytest.mark.parametrize("stack", [1.0, float("nan")])
def test_a_share_of_nothing_or_all_is_refused(stack):
    with pytest.raises(InvalidParameterError, match="`stack` of NoisyMoments"):
        NoisyMoments(stack=stack)
