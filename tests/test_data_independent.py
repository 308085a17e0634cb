import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from exact import (
    discrete_gaussian_masses,
    discrete_laplace_masses,
    histograms,
    label_probabilities,
    neighbors,
    renyi,
)
from tutelage.accounting.composition import gaussian_composition, pure_dp_composition
from tutelage.accounting.data_independent import epsilon, pure_dp_renyi, rdp
from tutelage.accounting.rdp import RenyiCurve, cks2020, classic
from tutelage.events import (
    CERTAIN,
    Composed,
    Event,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    PermuteAndFlipArgmax,
    PublicationTest,
    Repeated,
)
from tutelage.exceptions import InvalidParameterError, UnsupportedEventError
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit

LAPLACE = NoisyArgmaxLaplace(20.0, 10, ONE_TEACHER)
GAUSSIAN = NoisyArgmaxGaussian(40.0, 10, ONE_TEACHER)
ORDERS = np.array([1.5, 2.0, 4.0, 16.0, 64.0])


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(("event", "masses"), [
    (lambda m: NoisyArgmaxLaplace(1.5, m, ONE_TEACHER), discrete_laplace_masses(1.5, 90)),
    (lambda m: NoisyArgmaxGaussian(1.2, m, ONE_TEACHER), discrete_gaussian_masses(1.2, 20)),
])  # fmt: skip
def test_no_pair_of_small_neighbors_costs_more_than_the_curve(classes, event, masses):
    bound = rdp(event(classes), ORDERS).values
    for counts in histograms(5, classes):
        p = label_probabilities(counts, masses)
        for other in neighbors(counts):
            q = label_probabilities(other, masses)
            for order, limit in zip(ORDERS, bound, strict=True):
                assert renyi(p, q, order) <= limit * (1 + 1e-9)
                assert renyi(q, p, order) <= limit * (1 + 1e-9)


def test_the_headline_is_the_smallest_theorem():
    laplace, gaussian = (
        epsilon(Repeated(LAPLACE, 500), 1e-5),
        epsilon(Repeated(GAUSSIAN, 500), 1e-5),
    )
    assert laplace.epsilon < pure_dp_composition(0.1, 500, 1e-5) * 0.6
    assert gaussian.epsilon < gaussian_composition(40.0, 500, 1e-5) * 0.85
    flipped = epsilon(Repeated(PermuteAndFlipArgmax(20.0, 10, ONE_TEACHER), 500), 1e-5)
    assert flipped.epsilon == pytest.approx(11.409, abs=1e-3)


def test_composition_adds_and_flattens():
    both = Composed((Repeated(LAPLACE, 3), Repeated(Composed((GAUSSIAN, LAPLACE)), 2)))
    expected = 5 * rdp(LAPLACE).values + 2 * rdp(GAUSSIAN).values
    assert rdp(both).values == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("passes", "passes_there"), [(CERTAIN // 2, CERTAIN // 4), (CERTAIN // 10 * 9, CERTAIN // 2)]
)
def test_a_publication_test_is_charged_in_both_directions(passes, passes_there):
    """By the first of the two chances the pass tells more, by the second the refusal."""
    event = PublicationTest((passes, passes_there), 1e-5, ONE_TEACHER)
    p, q = ([chance / CERTAIN, 1 - chance / CERTAIN] for chance in (passes, passes_there))
    for order in (1.5, 3.0, 20.0):
        both = [renyi(np.array(here), np.array(there), order) for here, there in ((p, q), (q, p))]
        charged = rdp(event, np.array([order])).values[0]
        assert max(both) <= charged <= max(both) + 1e-9


def test_narrow_numpy_numbers_do_not_overflow_into_a_small_epsilon():
    wide = rdp(Repeated(NoisyArgmaxGaussian(300.0, 2, ONE_TEACHER), 128)).values
    narrow = NoisyArgmaxGaussian(np.float16(300), 2, ONE_TEACHER)  # pyright: ignore[reportArgumentType]
    assert rdp(Repeated(narrow, np.uint8(128))).values == pytest.approx(wide, rel=1e-15)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("orders", "values"),
    [([1.0], [0.1]), ([2.0], [np.nan]), ([2.0, 3.0], [0.1]), ([2.0, np.inf], [5.0, 9.0])],
)
def test_curves_refuse_nonsense(orders, values):
    with pytest.raises(InvalidParameterError):
        RenyiCurve(np.array(orders), np.array(values))


def test_units_do_not_mix_and_unknown_events_are_refused():
    row = PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW)
    with pytest.raises(UnsupportedEventError, match="different units"):
        epsilon(Composed((LAPLACE, NoisyArgmaxLaplace(20.0, 10, row))), 1e-5)

    class Unknown(Event):
        pass

    for call in (rdp, Repeated.flatten):
        with pytest.raises(UnsupportedEventError, match="Unknown"):
            call(Repeated(Unknown(), 2))


def test_simulated_noise_marks_the_epsilon():
    seeded = NoisyArgmaxGaussian(40.0, 10, ONE_TEACHER, simulated=True)
    assert Composed((GAUSSIAN, seeded)).is_simulated
    assert "not private" in str(epsilon(seeded, 1e-5))
    assert (epsilon(seeded, 1e-5).simulated, epsilon(GAUSSIAN, 1e-5).simulated) == (True, False)


@given(eps=st.floats(1e-8, 50), order=st.floats(1.0001, 1e5))
def test_randomised_response_against_fifty_digits(eps, order):
    with mp.workdps(60):
        e, lam = mp.mpf(eps), mp.mpf(order)
        truth, lie = 1 / (1 + mp.exp(-e)), 1 / (1 + mp.exp(e))
        exact = mp.log(truth**lam * lie ** (1 - lam) + lie**lam * truth ** (1 - lam)) / (lam - 1)
    found = float(pure_dp_renyi(eps, np.array([order]))[0])
    assert found == pytest.approx(float(exact), rel=1e-9)
    assert found <= min(eps, order * eps**2 / 2) * (1 + 1e-9)  # Theorem 2 of PATE 2017


@pytest.mark.parametrize("delta", [0, 1, float("nan")])
def test_delta_is_a_probability(delta):
    with pytest.raises(InvalidParameterError, match="`delta`"):
        epsilon(GAUSSIAN, delta)


def test_conversions_are_ordered_and_attain_the_known_gaussian_values():
    curve = rdp(Repeated(GAUSSIAN, 1000))
    tight, _ = curve.to_epsilon(1e-5, cks2020)
    loose, _ = curve.to_epsilon(1e-5, classic)
    # 1000 answers at σ = 40: zCDP with ρ = 0.625, classic ρ + 2√(ρ ln 1/δ).
    assert loose == pytest.approx(0.625 + 2 * np.sqrt(0.625 * np.log(1e5)), rel=1e-4)
    assert tight == pytest.approx(5.37767, abs=2e-4)  # autodp and dp-accounting
