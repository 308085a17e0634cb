"""All checks of one fit, whatever its method: its noise, its rows, and how far one person moves its ballots.

The requests of the method are answered once, in memory and with simulated noise. Then people are changed one at a time
and cast the ballots of the same requests again. The result is for the data set owner; nothing is released or spent.
"""

import warnings
from copy import copy
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy import stats

from tutelage._internal.fitting import arrays_out
from tutelage._internal.progress import progress_bar
from tutelage._internal.records import Entries
from tutelage._internal.typing import Array, Mask, Matrix
from tutelage._internal.validation import integer_at_least
from tutelage.audit.checklist import Checked, PrivateRows, check_mechanism, check_rows, pass_if
from tutelage.audit.mechanism import audit_sum
from tutelage.audit.sensitivity import changes_of_one, n_differing
from tutelage.boundary import Boundary
from tutelage.estimator import PATEClassifier, PATERegressor
from tutelage.events import TIER_STEPS
from tutelage.exceptions import InvalidDataError
from tutelage.mechanisms import NoisySum
from tutelage.methods.requests import Training
from tutelage.methods.votes import fewer_votes
from tutelage.noise import NoiseSource, SimulationNoise, SystemNoise
from tutelage.partition import as_column, ids_in
from tutelage.people.memory import PeopleInMemory
from tutelage.privacy import round_up
from tutelage.release import PreparedRelease
from tutelage.tables import as_table
from tutelage.terms import Asked

_SAMPLED_ROWS = 1_500
_TEACHERS = 10
_QUERIES = 300
_CHECK = "one person, one ballot"
_NOT_REPEATABLE = (
    "The same rows gave other ballots the second time. Seed the teachers, "
    "and use no random stream that they share."
)
_ALONE = "There is one teacher, so no change could have reached a second one: nothing was shown."
_NOTHING = (
    "No change moved any ballot, so nothing was shown. Use more public rows, or try more entities."
)
_TOO_FAR = (
    " Features of one row depend on others, teachers share rows, or a person casts several ballots: do not release "
    "with it."
)


@arrays_out()
def check_fit(
    model: PATEClassifier | PATERegressor,
    private: PrivateRows,
    X_public: npt.ArrayLike | None = None,
    *,
    y_public: npt.ArrayLike | None = None,
    scored: int = 0,
    draws: int = 40_000,
    entities: int = 4,
    progress: bool = False,
) -> list[Checked]:
    """Check the noise, the rows and the ballots of what a fit of `model` would release.

    Parameters
    ----------
    model : PATEClassifier or PATERegressor
        What is audited. Its ledger is read, because the noise may follow from it, and never written.
    private : PrivateRows
        Rows, labels and ids, as `fit` takes them.
    X_public : array of shape (rows, features), optional
        Public rows. Leave them out where `model` has a public schema.
    y_public : array of shape (rows,), optional
        Their labels, where `fit` gets them.
    scored : int
        How many of the last public rows only score the student.
    draws : int
        Noisy labels, or sums, to draw for each check of the mechanism.
    entities : int
        People to change and to remove, one at a time; each takes three or four runs on a sample of the rows.
    progress : bool
        Show a progress bar.
    """
    integer_at_least(entities, 1, "entities", "check_fit")
    trial = copy(model).set_params(random_state=model.random_state or 0)
    if isinstance(private.entity_ids, str):
        trial.set_params(unit=model.unit or private.entity_ids)
    ids: Entries = {"entity_ids": private.entity_ids, "silos": private.silos}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are for those who release it
        whole = trial.prepare(
            private.X,
            private.y,
            X_public=X_public,
            y_public=y_public,
            scored=scored,
            insist=True,
            tiers=private.tiers,
            **ids,
        )
    mechanism = whole.method.mechanism
    people = whole.people
    if not isinstance(people, PeopleInMemory):
        raise InvalidDataError(
            "The rows of check_fit must be in memory. Pass some of them as an array or a table."
        )
    tiers = None if people.tiers is None else people.tiers[people.shards.assignment]
    remaining = _remaining_ids(private.X, ids, whole, people)
    rows = PrivateRows(people.rows, people.labels, **remaining, tiers=tiers)
    if isinstance(mechanism, NoisySum):
        checks = [_check_noise_of_sum(draws), _check_claim_of_sum(draws)]
    else:
        n_classes = len(whole.public.classes)
        checks = check_mechanism(
            mechanism,
            people.shards.n_shards,
            n_classes,
            draws=draws,
        )
    public_rows = None
    if X_public is not None:
        public_rows = np.concatenate([whole.public.rows, whole.scored])
    checks += check_rows(rows, public_rows)
    moves = _check_moves(
        trial,
        _smaller_fit(whole),
        _sample_of(rows),
        entities,
        progress=progress,
    )
    return [*checks, moves]


def _remaining_ids(
    X: object, ids: Entries, whole: PreparedRelease, people: PeopleInMemory
) -> Entries:
    """Return ids as arrays, or None, without those of people who withdrew and so have no rows any more."""
    table = as_table(X)
    columns = Entries(ids)
    for name, column in ids.items():
        if isinstance(column, str) and table is not None:
            columns[name] = ids_in(table, column)
    if people.known is not None:
        remaining, _ = whole.ledger.register.not_withdrawn(people.known.tolist())
        for name, column in columns.items():
            if column is not None:
                columns[name] = as_column(column)[remaining]
    return columns


def _sample_of(rows: PrivateRows) -> PrivateRows:
    """Return the rows of entities chosen at random, about as many as one tries out on."""
    ids = rows.entity_ids
    if ids is None:
        ids = np.arange(len(rows.X))
    names, entity = np.unique(as_column(ids).astype(str), return_inverse=True)
    order = np.random.default_rng(0).permutation(len(names))[entity]
    first = np.argsort(order, kind="stable")[:_SAMPLED_ROWS]
    return rows.only(np.sort(first))


def _smaller_fit(whole: PreparedRelease) -> PreparedRelease:
    """Return a fit with few teachers and queries, with the noise of the whole one, and with a budget in memory."""
    public = whole.public
    fewer = Entries()
    for name in ("rows", "teacher_rows", "student_rows", "labels"):
        values = getattr(public, name)
        if values is not None:
            fewer[name] = values[:_QUERIES]
    asked = Asked(None, None, 1, whole.budget.asked.delta, given=True)
    return replace(
        whole,
        method=fewer_votes(whole.method, _TEACHERS, len(fewer["rows"])),
        public=replace(public, **fewer, training=Training(public.training.seed)),
        budget=replace(whole.budget, ledger=None, asked=asked),
    )


def _boundary(
    model: PATEClassifier | PATERegressor,
    fit: PreparedRelease,
    people: PrivateRows,
) -> tuple[Boundary, int]:
    """Return a boundary with these people behind it, and how many ballots they cast."""
    shards = model.partition(fit.method, len(people.X), people.entity_ids, people.silos)
    tiers = None
    if people.tiers is not None:
        tiers = np.zeros(shards.n_shards, np.int64)
        tiers[shards.assignment] = people.tiers
    prepared = fit.prepare_people(PeopleInMemory(people.X, people.y, shards, tiers=tiers))
    budget = fit.budget.ledger_for(fit.method, fit.public.sizes)
    return Boundary(budget, SimulationNoise(0), prepared, tiers=fit.tiers), shards.n_shards


def _check_moves(
    model: PATEClassifier | PATERegressor,
    fit: PreparedRelease,
    people: PrivateRows,
    entities: int,
    *,
    progress: bool,
) -> Checked:
    """Return whether no person moves the ballots by more than 2 if changed, or 1 if its ballot is removed.

    Of people in tiers, that is in lengths of the ballots of their tier.
    """
    before, voters = _boundary(model, fit, people)
    before.run(fit.method.steps(fit.public))

    def cast_again(changed: PrivateRows) -> tuple[int, float]:
        """Return how many ballots are left, and how far they moved."""
        after, left = _boundary(model, fit, changed)
        for kept in before.noised:
            after.release(kept.request)
        return left, _distance(before, after)

    _, moved = cast_again(people)
    if moved:
        return Checked(_CHECK, "fail", _NOT_REPEATABLE, private=True)
    furthest = dict[int, float]()  # by how many ballots are allowed
    schema = fit.public.schema
    changes = [*changes_of_one(people.X, people.y, people.entity_ids, entities)]
    bar = progress_bar(changes, "one person changed", len(changes), shown=progress)
    for _, rows, labels, kept in bar:
        length = _length_of_changed(fit, people, rows, labels, kept)
        if schema is not None:
            rows = np.minimum(rows, np.array(schema.bins) - 1)  # no row is in another bin
        left, moved = cast_again(replace(people.only(kept), X=rows, y=labels))
        allowed = 2 - (voters - left)
        # A quotient of roots may be above 1 in its last digits where the ballot is as long as allowed.
        moved = round(moved / length, 9)
        furthest[allowed] = max(moved, furthest.get(allowed, 0.0))
    return _verdict(furthest, voters, len(before.noised))


def _length_of_changed(
    fit: PreparedRelease,
    people: PrivateRows,
    rows: Matrix,
    labels: Array,
    kept: Mask,
) -> float:
    """Return the length of the ballots of the person who was changed, as a share of a whole one."""
    if people.tiers is None:
        return 1.0
    changed = ~kept
    if kept.all():
        same = (rows == people.X) | (np.isnan(rows) & np.isnan(people.X))
        changed = (labels != people.y) | ~same.all(axis=1)
    if not changed.any():
        return 1.0
    number = int(people.tiers[changed][0])
    return fit.tiers[number][1] / TIER_STEPS


def _distance(before: Boundary, after: Boundary) -> float:
    """Return how far ballots moved, in any request or in a whole campaign; a teacher that votes otherwise counts 2."""
    in_campaign = 0.0
    largest = 0.0
    ballots = getattr(before.prepared, "ballots", None)
    if ballots is not None:
        largest = 2.0 * n_differing(ballots, after.prepared.ballots)
    for kept, kept_after in zip(before.noised, after.noised, strict=True):
        distance = kept.ballots.distance_to(kept_after.ballots)
        if kept.request.campaign:
            in_campaign += distance
        else:
            largest = max(largest, distance)
    return max(largest, in_campaign)


def _verdict(
    furthest: dict[int, float],
    voters: int,
    requests: int,
) -> Checked:
    """Return the verdict on how far ballots moved, by how far they may."""
    if not any(furthest.values()):
        return Checked(_CHECK, "note", _NOTHING, private=True)
    passed = all(moved <= allowed for allowed, moved in furthest.items())
    if passed and voters < 2:
        return Checked(_CHECK, "note", _ALONE, private=True)
    changes = {2: "a change of one person", 1: "the removal of one person and its ballot"}
    moves = list[str]()
    for allowed, moved in furthest.items():
        moves.append(
            f"{changes[allowed]} moved the ballots by up to {moved:.3f}, of {allowed} allowed"
        )
    asked = "1 request" if requests == 1 else f"{requests:,} requests"
    reason = f"In {asked}, {', and '.join(moves)}."
    if not passed:
        reason += _TOO_FAR
    return Checked(_CHECK, pass_if(passed), reason, private=True)


_BINS = 20
_LEAST_P = 1e-6
_SIGMA = 1000.0  # of the noise that is drawn: any scale will do, the sampler is the same
_SHARP = NoisySum(1.5)  # with so little noise one ballot shows
_DELTA = 0.05
_CONFIDENCE = 1 - 1e-6
_BALLOT = (3, -4)


def _check_noise_of_sum(draws: int, noise: NoiseSource | None = None) -> Checked:
    """Draw the noise of a sum and compare it with the law that the accounting takes it to have."""
    drawn = (noise or SystemNoise()).discrete_gaussian(_SIGMA, (draws,))
    edges = np.rint(stats.norm.ppf(np.arange(1, _BINS) / _BINS) * _SIGMA) + 0.5
    expected = np.diff(stats.norm.cdf(edges / _SIGMA), prepend=0, append=1) * draws
    frequencies, _ = np.histogram(drawn, [-np.inf, *edges, np.inf])
    _, of_shape = cast("tuple[float, float]", stats.chisquare(frequencies, expected))
    in_sigma = drawn / _SIGMA
    size = float(in_sigma.astype(np.float64) @ in_sigma)
    of_spread = 2 * min(stats.chi2.cdf(size, draws), stats.chi2.sf(size, draws))
    p_value = float(min(of_shape, of_spread))
    passed = p_value > _LEAST_P
    verdict = "is distributed as" if passed else "is not what"
    reason = f"Over {draws:,} draws, the noise of a sum {verdict} the accounting takes it to be (p = {p_value:.2g})."
    return Checked("noise as configured", pass_if(passed), reason)


def _check_claim_of_sum(draws: int) -> Checked:
    """Release a made-up sum and its neighbor with little noise, and compare what shows with the claimed ε."""
    audit = audit_sum(
        _SHARP,
        _BALLOT,
        delta=_DELTA,
        draws=draws,
        confidence=_CONFIDENCE,
    )
    reason = (
        f"{audit.mechanism}: at δ = {_DELTA:g}, {2 * draws:,} releases of a sum show ε ≥ {audit.lower_bound:.3f}; "
        f"claimed is {round_up(audit.claim, 3):.3f}."
    )
    return Checked("ε of a sum with little noise", pass_if(audit.passed), reason)
