"""Intervals from noisy sums of ballots: they cover the truth, and with either source of error left out they do not."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.metrics import roc_auc_score

from tutelage._internal.records import plain
from tutelage.reporting.intervals import (
    Interval,
    Variance,
    of_largest_distance,
    of_mean,
    of_ranking,
    of_ratio,
    of_share,
)
from tutelage.reporting.meaning import Z_95, interval
from tutelage.reporting.measured import (
    UNIT,
    ClassLayout,
    Measured,
    MeasuredErrors,
    NumberLayout,
    measured,
    measured_errors,
)
from tutelage.reporting.render import as_count, as_number, as_points, as_share

# An interval that covers in 95 % of cases fails a check of 2,500 draws with probability 4e-6, one that covers in 90 %
# passes it with probability 3e-7; the fast check of 800 draws requires 92 %: 2e-4 and 0.03.
DRAWS = 2500
LEAST = 0.93
FEW_DRAWS = 800
LEAST_OF_FEW = 0.92

Shares = dict[str, Interval | None]


class World(NamedTuple):
    """People of a population: how many are drawn, how noisy their sum is, and who they are."""

    n_people: int
    noise: float  # in people, for each cell of the table
    n_classes: int = 2
    n_groups: int = 1
    rare: float = 0.5  # share of all classes but the first
    is_public: bool = False  # the number of people

    @property
    def layout(self) -> ClassLayout:
        groups = (
            tuple(f"g{index}" for index in range(self.n_groups)) if self.n_groups > 1 else ("",)
        )
        classes = tuple(f"c{index}" for index in range(self.n_classes))
        return ClassLayout(groups, classes, 10 if self.n_classes == 2 else 0)

    def law(self, random: np.random.Generator) -> tuple[Any, Any]:
        """Return random probabilities of the cells of the table and, of two classes, of the bins."""
        shares = random.dirichlet(np.full(self.n_groups, 5.0))[:, None]
        classes = np.r_[
            1 - self.rare, np.full(self.n_classes - 1, self.rare / (self.n_classes - 1))
        ]
        if self.n_classes == 2:
            middles = np.log((np.arange(10) + 0.5) / (9.5 - np.arange(10)))
            means = random.uniform(0.3, 2, (self.n_groups, 2, 1)) * [[-1], [1]]
            bins = np.exp(-((middles - means) ** 2) / 3)
            bins *= (shares * classes)[..., None] / bins.sum(axis=2, keepdims=True)
            return bins.reshape(-1, 2, 2, 5).sum(axis=3), bins
        right = random.uniform(0.4, 0.97, (self.n_groups, self.n_classes, 1))
        wrong = random.dirichlet(np.ones(self.n_classes), (self.n_groups, self.n_classes))
        table = right * np.eye(self.n_classes) + (1 - right) * wrong
        return table * (shares * classes)[..., None], np.zeros((self.n_groups, self.n_classes, 0))

    def values(self, random: np.random.Generator, table: Any, bins: Any) -> Any:
        """Return the noisy sum of the ballots of random people."""
        if bins.size:
            bins = random.multinomial(self.n_people, bins.ravel() / bins.sum()).reshape(bins.shape)
            table = bins.reshape(-1, 2, 2, 5).sum(axis=3)
        else:
            table = random.multinomial(self.n_people, table.ravel() / table.sum())
        numbers = np.concatenate(
            [table.ravel() * ClassLayout.TABLE, bins.ravel() * ClassLayout.BIN]
        )
        noise = random.normal(0, self.noise * ClassLayout.TABLE, numbers.size)
        return numbers.astype(np.int64) + np.rint(noise).astype(np.int64)


def truths(table: Any, bins: Any) -> dict[str, float]:
    """Return what an endless test set would say, for everybody and for the first group."""
    found = dict[str, float]()
    accuracies = [np.trace(part) / part.sum() for part in table]
    found["gap"] = max(accuracies) - min(accuracies)
    for name, part in (("all", slice(None)), ("first", slice(1))):
        cells = table[part].sum(axis=0)
        right = np.diag(cells)
        recalls = right / cells.sum(axis=1)
        found[f"{name} accuracy"] = right.sum() / cells.sum()
        found[f"{name} balanced"] = recalls.mean()
        found[f"{name} recall"] = recalls[-1]
        found[f"{name} precision"] = right[-1] / cells.sum(axis=0)[-1]
        if bins.size:
            negatives, positives = bins[part].sum(axis=0)
            below = np.cumsum(negatives) - negatives / 2
            found[f"{name} auc"] = positives @ below / negatives.sum() / positives.sum()
            found[f"{name} bin"] = positives[6] / (positives[6] + negatives[6])
    return found


def estimates(result: Measured) -> Shares:
    """Return the intervals of the same measures."""
    found: Shares = {}
    for gap in result.gaps[:1]:
        found["gap"] = gap.distance
    for name, part in zip(("all", "first"), result.groups[:2], strict=False):
        found[f"{name} accuracy"] = part.accuracy
        found[f"{name} balanced"] = part.balanced_accuracy
        found[f"{name} recall"] = part.by_class[-1].recall
        found[f"{name} precision"] = part.by_class[-1].precision
        if part.calibration:
            found[f"{name} auc"] = part.auc
            found[f"{name} bin"] = part.calibration[6].share
    return found


def coverage(draws: Iterator[tuple[dict[str, float], Shares]], at_least: int) -> dict[str, float]:
    """Return how often each interval contains the truth; one that claims nothing contains it."""
    hits = dict[str, list[bool]]()
    for truth, found in draws:
        for name, entry in found.items():
            is_in = entry is None or entry.low - 1e-9 <= truth[name] <= entry.high + 1e-9
            hits.setdefault(name, []).append(is_in)
    assert all(len(entries) >= at_least for entries in hits.values())
    return {name: float(np.mean(entries)) for name, entries in hits.items()}


def draws_of(
    world: World, n_draws: int, scale: float = 1.0, believed: float = 1.0
) -> Iterator[tuple[dict[str, float], Shares]]:
    """Yield truths and intervals of random populations.

    Sums and noise are multiplied by `scale`, which leaves out the sampling; the intervals believe in `believed` of
    the noise.
    """
    random = np.random.default_rng([7, world.n_people, world.n_classes, world.n_groups])
    for _ in range(n_draws):
        table, bins = world.law(random)
        values = np.rint(world.values(random, table, bins) * scale).astype(np.int64)
        sigma = world.noise * ClassLayout.TABLE * scale * believed
        people = int(world.n_people * scale) if world.is_public else None
        yield truths(table, bins), estimates(measured(values, sigma, world.layout, people))


def test_intervals_cover_the_truth():
    world = World(2000, 10, n_classes=3, is_public=True)
    shares = coverage(draws_of(world, FEW_DRAWS), FEW_DRAWS)
    assert set(shares) == {"all accuracy", "all balanced", "all recall", "all precision"}
    assert min(shares.values()) >= LEAST_OF_FEW


@pytest.mark.rest
@pytest.mark.parametrize(
    "world",
    [
        World(300, 0, n_classes=2, rare=0.4, is_public=True),
        World(300, 2, n_classes=2, rare=0.1),
        World(1000, 12, n_classes=2, is_public=True),
        World(1000, 1, n_classes=2, rare=0.05),
        World(3000, 3, n_classes=2, rare=0.01, is_public=True),
        World(10_000, 30, n_classes=2, n_groups=2, rare=0.24, is_public=True),
        World(50_000, 60, n_classes=2, n_groups=5, rare=0.05),
        World(5000, 10, n_classes=7, rare=0.6, is_public=True),
        World(50_000, 100, n_classes=4, n_groups=3, rare=0.3),
        World(50_000, 0, n_classes=3, n_groups=2, rare=0.01),
        World(300, 100, n_classes=2),
    ],
    ids=str,
)
def test_intervals_cover_the_truth_in_every_world(world):
    shares = coverage(draws_of(world, DRAWS), DRAWS)
    assert min(shares.values()) >= LEAST, shares


@pytest.mark.parametrize(
    ("noise", "fault"), [(12, {"believed": 1e-9}), (1, {"scale": 1e4})], ids=["noise", "sampling"]
)
@pytest.mark.parametrize("is_public", [False, True])
def test_intervals_without_noise_or_sampling_are_caught(noise, fault, is_public):
    world = World(1000, noise, rare=0.4, is_public=is_public)
    right = coverage(draws_of(world, 300), 300)
    wrong = coverage(draws_of(world, 300, **fault), 300)
    assert wrong.keys() == right.keys()
    assert max(wrong.values()) < 0.88 < min(right.values())


@pytest.mark.rest
@pytest.mark.parametrize("is_public", [False, True])
def test_people_with_several_rows_are_covered(is_public):
    random = np.random.default_rng(3)
    layout = ClassLayout(("",), ("no", "yes"))

    def draws() -> Iterator[tuple[dict[str, float], Shares]]:
        for _ in range(DRAWS):
            law = random.dirichlet([8, 2, 2, 6])
            rows = random.multinomial(random.integers(1, 6, 800), law)
            ballots = np.floor(rows / rows.sum(axis=1, keepdims=True) * ClassLayout.TABLE)
            assert (ballots**2).sum(axis=1).max() <= layout.norm_squared
            noise = np.rint(random.normal(0, 6 * ClassLayout.TABLE, 4))
            values = (ballots.sum(axis=0) + noise).astype(np.int64)
            result = measured(values, 6 * ClassLayout.TABLE, layout, 800 if is_public else None)
            yield truths(law.reshape(1, 2, 2), np.zeros(0)), estimates(result)

    assert min(coverage(draws(), DRAWS).values()) >= LEAST


@pytest.mark.parametrize("is_public", [False, True])
def test_intervals_are_no_wider_than_they_must_be(is_public):
    world = World(20_000, 40, is_public=is_public)
    random = np.random.default_rng(5)
    table, bins = world.law(random)
    found = dict[str, list[Interval]]()
    for _ in range(400):
        values = world.values(random, table, bins)
        result = measured(
            values, 40 * ClassLayout.TABLE, world.layout, 20_000 if is_public else None
        )
        for name, entry in estimates(result).items():
            assert entry is not None
            found.setdefault(name, []).append(entry)
    for name, entries in found.items():
        ideal = Z_95 * np.std([entry.value for entry in entries])
        half = np.mean([entry.high - entry.low for entry in entries]) / 2
        # The deviation of 400 draws is within 14 % with probability 1e-4.
        assert 0.85 * ideal < half < 1.2 * ideal, name


@given(arrays.arrays(np.int64, (3, 3), elements=st.integers(0, 500)), st.booleans())
def test_without_noise_the_interval_is_that_of_counted_rows(table, is_public):
    total = int(table.sum())
    layout = ClassLayout(("",), ("a", "b", "c"))
    people = total if is_public else None
    everybody = measured(table.ravel() * ClassLayout.TABLE, 0.0, layout, people).groups[0]
    counted = [(everybody.accuracy, int(np.trace(table)), total)]
    for index, entry in enumerate(everybody.by_class):
        right = int(table[index, index])
        counted.append((entry.recall, right, int(table[index].sum())))
        counted.append((entry.precision, right, int(table[:, index].sum())))
    for share, right, rows in counted:
        if rows == 0:
            assert share is None
        else:
            assert share is not None
            assert share.value == right / rows
            assert (share.low, share.high) == pytest.approx(interval(right, rows), abs=1e-12)


@given(
    st.floats(-50, 200),
    st.floats(1, 200),
    st.floats(0, 500),
    st.floats(0, 500),
    st.floats(0, 100),
)
def test_an_interval_is_the_ratios_that_the_numbers_do_not_exclude(
    top, bottom, hits, misses, people
):
    variance = Variance(hits, people - 2 * hits, hits + misses - people)
    found = of_ratio(top, bottom, variance)
    grid = np.linspace(0, 1, 2001)
    spread = np.polyval([variance.square, variance.linear, variance.constant], grid)
    shifted = min(max(top, 0), bottom)
    kept = grid[(shifted - grid * bottom) ** 2 <= Z_95**2 * spread]
    if found is None:
        is_unclear = 9 * variance.square >= bottom**2
        assert is_unclear or {kept.min(), kept.max()} == {0.0, 1.0}
        return
    assert found.value == shifted / bottom
    if kept.size:
        assert found.low - 1e-9 <= kept.min() <= found.low + 5.1e-4
        assert found.high - 5.1e-4 <= kept.max() <= found.high + 1e-9


@given(
    arrays.arrays(np.int64, (2, 10), elements=st.integers(0, 30)).filter(
        lambda bins: bool(bins.sum(axis=1).all())
    )
)
def test_the_auc_is_that_of_the_binned_scores(bins):
    found = of_ranking(bins[0].astype(float), bins[1].astype(float), 0.0)
    if found is not None:
        of_class, of_bin = np.indices(bins.shape)
        classes = np.repeat(of_class.ravel(), bins.ravel())
        scores = np.repeat(of_bin.ravel(), bins.ravel())
        assert found.value == pytest.approx(roc_auc_score(classes, scores))


def test_the_auc_of_noisy_counts_is_not_biased():
    random = np.random.default_rng(11)
    negatives = np.linspace(900, 100, 10)
    positives = np.linspace(50, 950, 10)
    exact = of_ranking(negatives, positives, 0.0)
    assert exact is not None
    values = []
    for _ in range(2000):
        noise = random.normal(0, 100, (2, 10))
        found = of_ranking(negatives + noise[0], positives + noise[1], 100.0)
        assert found is not None
        values.append(found.value)
    # The mean of 2,000 is within 4 of its standard deviations with probability 6e-5.
    assert abs(np.mean(values) - exact.value) < 4 * np.std(values) / 2000**0.5 + 0.001


def test_the_largest_gap_is_between_the_groups_that_differ_most():
    layout = ClassLayout(("a", "b", "c"), ("no", "yes"), 2)
    table = np.array([[[400, 100], [50, 450]], [[300, 200], [100, 400]], [[450, 50], [90, 410]]])
    bins = np.zeros((3, 2, 2), dtype=int)
    values = np.r_[table.ravel() * ClassLayout.TABLE, bins.ravel()]
    result = measured(values, 0.0, layout, None)
    accuracy, recall = result.gaps
    assert (accuracy.measure, accuracy.highest, accuracy.lowest) == ("accuracy", "c", "b")
    assert accuracy.distance.value == pytest.approx(0.86 - 0.7)
    assert (recall.measure, recall.highest, recall.lowest) == ("recall of yes", "a", "b")
    # Three pairs at once, so wider than the interval of one pair.
    first, second = result.groups[3].accuracy, result.groups[2].accuracy
    assert first is not None
    assert second is not None
    alone = of_largest_distance([first, second])
    assert alone is not None
    assert 0 < accuracy.distance.low < alone.low < alone.high < accuracy.distance.high


def test_a_mean_needs_all_its_parts():
    part = Interval(0.5, 0.4, 0.8)
    assert of_mean([part, None]) is None
    assert of_mean([part, part]) == Interval(0.5, 0.5 - 0.1 / 2**0.5, 0.5 + 0.3 / 2**0.5)


def test_a_class_that_drowns_in_the_noise_has_no_recall():
    noise = 40.0
    hits = np.array([20.0])
    assert of_share(hits, hits, noise) is None
    assert of_share(100 * hits, hits, noise) is not None


class Numbers(NamedTuple):
    """People of a population with numbers from 0 to 10, whose errors have one of several laws."""

    n_people: int
    noise: float
    spread: float  # of the errors
    is_public: bool

    def draw(self, random: np.random.Generator, n_people: int) -> Any:
        targets = 10 * random.beta(2, 4, n_people)
        errors = random.standard_t(5, n_people) * self.spread
        return errors, (np.abs(errors) < 1.6 * self.spread).astype(float), targets


OF_NUMBERS = NumberLayout(("",), 4.0, 0.0, 10.0)


def of_numbers(result: MeasuredErrors) -> Shares:
    everybody = result.groups[0]
    names = ("mean_absolute", "root_mean_square", "covered", "r_squared")
    return {name: getattr(everybody, name) for name in names}


def draws_of_numbers(
    world: Numbers, n_draws: int, scale: float = 1.0, believed: float = 1.0
) -> Iterator[tuple[dict[str, float], Shares]]:
    random = np.random.default_rng([8, world.n_people, int(world.noise)])
    errors, covered, targets = world.draw(random, 2_000_000)
    clipped = np.minimum(np.abs(errors), OF_NUMBERS.largest_error)
    truth = {
        "mean_absolute": clipped.mean(),
        "root_mean_square": (clipped**2).mean() ** 0.5,
        "covered": covered.mean(),
        "r_squared": 1 - (clipped**2).mean() / targets.var(),
    }
    sigma = world.noise * UNIT * scale
    for _ in range(n_draws):
        entries = OF_NUMBERS.entries(*world.draw(random, world.n_people))
        sums = np.floor(entries * UNIT).sum(axis=0) * scale
        values = np.rint(sums + random.normal(0, sigma, sums.size)).astype(np.int64)
        people = int(world.n_people * scale) if world.is_public else None
        yield truth, of_numbers(measured_errors(values, sigma * believed, OF_NUMBERS, people))


@pytest.mark.rest
@pytest.mark.parametrize(
    "world",
    [
        Numbers(300, 0, 1.0, is_public=False),
        Numbers(300, 5, 1.0, is_public=True),
        Numbers(2000, 20, 0.5, is_public=False),
        Numbers(2000, 20, 1.5, is_public=True),
        Numbers(8000, 200, 1.0, is_public=False),
    ],
    ids=str,
)
def test_intervals_of_errors_cover_the_truth(world):
    shares = coverage(draws_of_numbers(world, DRAWS), DRAWS)
    assert min(shares.values()) >= LEAST, shares


@pytest.mark.parametrize(
    ("noise", "fault"), [(20, {"believed": 1e-9}), (1, {"scale": 1e4})], ids=["noise", "sampling"]
)
def test_intervals_of_errors_without_noise_or_sampling_are_caught(noise, fault):
    world = Numbers(1000, noise, 1.0, is_public=False)
    right = coverage(draws_of_numbers(world, 300), 300)
    wrong = coverage(draws_of_numbers(world, 300, **fault), 300)
    assert max(wrong.values()) < 0.88 < min(right.values())


@given(
    arrays.arrays(np.float64, (20, 3), elements=st.floats(-1e6, 1e6)),
    st.floats(1e-3, 1e3),
    st.floats(1e-3, 1e3),
)
def test_entries_of_numbers_are_within_their_bound(rows, largest, width):
    layout = NumberLayout(("",), largest, -1.0, width - 1.0)
    entries = layout.entries(rows[:, 0], (rows[:, 1] > 0).astype(float), rows[:, 2])
    assert entries.min() >= 0
    assert entries.max() <= 1
    assert (entries**2).sum(axis=1).max() <= 4 + 1e-12
    assert (np.floor(entries * UNIT) ** 2).sum(axis=1).max() <= layout.norm_squared


def test_a_ballot_of_one_row_has_the_length_of_the_bound():
    layout = ClassLayout(("",), ("no", "yes"), 10)
    assert layout.norm_squared == ClassLayout.TABLE**2 + ClassLayout.BIN**2
    assert layout.shape == (1, 4 + 20)
    assert ClassLayout(("a", "b"), ("x", "y", "z")).norm_squared == ClassLayout.TABLE**2
    assert 0.66 < ClassLayout.TABLE**2 / layout.norm_squared < 0.67


@pytest.mark.parametrize("n_bins", [2, 10, 20])
def test_bins_are_symmetric_about_one_half(n_bins):
    edges = np.array(ClassLayout(("",), ("no", "yes"), n_bins).edges)
    assert len(edges) == n_bins + 1
    assert (edges[0], edges[n_bins // 2], edges[-1]) == (0, 0.5, 1)
    assert (np.diff(edges) > 0).all()
    assert edges == pytest.approx(1 - edges[::-1])
    if n_bins == 10:
        assert edges[1:5] == pytest.approx([0.03, 0.10, 0.20, 0.34], abs=0.006)


def test_bins_near_zero_keep_the_auc_of_a_rare_class():
    random = np.random.default_rng(2)
    scores = 1 / (1 + np.exp(-random.normal(-4.2, 1.9, 200_000)))
    classes = random.random(200_000) < scores
    layout = ClassLayout(("",), ("no", "yes"), 10)
    exact = roc_auc_score(classes, scores)

    def lost(edges: Any) -> float:
        return float(exact - roc_auc_score(classes, np.searchsorted(edges[1:-1], scores)))

    assert lost(layout.edges) < 0.03
    assert lost(np.linspace(0, 1, 11)) > 0.07


def parts_of(record: Any) -> Iterator[Interval]:
    """Yield all intervals in a record."""
    if isinstance(record, Interval):
        yield record
    elif isinstance(record, tuple):
        for part in record:
            yield from parts_of(part)
    elif isinstance(record, msgspec.Struct):
        for name in record.__struct_fields__:
            yield from parts_of(getattr(record, name))


NUMBERS = st.integers(-(2**62), 2**62) | st.integers(-(10**6), 10**6) | st.sampled_from([0, 1, -1])
SIGMAS = st.floats(0, 1e18) | st.floats(0, 1e6)
PEOPLE = st.none() | st.integers(0, 10**9)


@given(st.data(), SIGMAS, PEOPLE, st.integers(1, 3), st.integers(2, 4))
def test_no_numbers_are_refused_and_the_record_is_read_back(data, sigma, people, groups, classes):
    layout = ClassLayout(
        tuple(map(str, range(groups))), tuple(map(str, range(classes))), 4 if classes == 2 else 0
    )
    values = data.draw(arrays.arrays(np.int64, layout.shape, elements=NUMBERS))
    result = measured(values, sigma, layout, people)
    assert msgspec.json.decode(msgspec.json.encode(result), type=Measured) == result
    assert plain(msgspec.convert(plain(result), Measured)) == plain(result)
    shares = list(parts_of(result.groups)) + list(parts_of(result.gaps))
    people_of = [group.people for group in result.groups]
    for entry in shares:
        assert entry.low <= entry.value <= entry.high
        assert entry in people_of or 0 <= entry.low <= entry.high <= 1
        assert entry in people_of or (entry.low, entry.high) != (0, 1)


@given(st.data(), SIGMAS, PEOPLE)
def test_no_numbers_of_a_regressor_are_refused(data, sigma, people):
    layout = NumberLayout(("a", "b"), 4.0, 0.0, 10.0)
    values = data.draw(arrays.arrays(np.int64, layout.shape, elements=NUMBERS))
    result = measured_errors(values, sigma, layout, people)
    assert msgspec.json.decode(msgspec.json.encode(result), type=MeasuredErrors) == result
    for entry in parts_of(result.groups):
        assert entry.low <= entry.value <= entry.high


def test_a_card_writes_differences_in_points_and_an_exact_number_alone():
    assert as_share(Interval(0.1, 0.05, 0.2)) == "10.0% (5.0% to 20.0%)"
    assert as_points(Interval(0.1, 0.05, 0.2)) == "10.0 points (5.0 to 20.0)"
    assert as_number(None) == as_share(None) == "hidden by the noise"
    assert as_count(Interval(1200.0, 1200.0, 1200.0)) == "1,200"
    assert as_count(Interval(1200.0, 1100.0, 1300.0)) == "1,200 (1,100 to 1,300)"
