"""Maps and students that a hostile aggregator sends: what a hospital accepts, and that it then always answers."""

import hashlib
import json
from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from consortia import PARTIES, found
from tutelage.exceptions import ForgedMessageError
from tutelage.features import PublicKernel, PublicProjection, PublicScaling, UnitBall
from tutelage.features.rowwise import EXACT_FLOAT64, distance_levels
from tutelage.federation import Batch, ComputingParty, SumRound
from tutelage.federation import entity as federated_casting
from tutelage.federation.computing_party import statement_of
from tutelage.federation.entity import ballots_of
from tutelage.federation.sharing import HEAD_BYTES, MODULUS, SALT_BYTES, SPLIT_NAME_BYTES, added, decode, encode
from tutelage.mechanisms import NoisySum
from tutelage.teachers import VectorBallots

PEOPLE, COLUMNS, LANDMARKS, NUMBERS = 400, 4, 30, 6
LEVELS = distance_levels(COLUMNS, EXACT_FLOAT64)


def terms_of(folder, **changes):
    settings: dict[str, Any] = {"people": (PEOPLE,) * 3, "n_classes": 2, "epsilon": 2.0, "teachers_per_entity": 1}
    settings["teacher"] = VectorBallots(n_landmarks=40)
    return found(folder, NoisySum(8.0), entities=3, **settings | changes)


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    return terms_of(tmp_path_factory.mktemp("members"))


def rows(n=PEOPLE, columns=COLUMNS, seed=5):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 5, size=(n, columns)).astype(float), (rng.random(n) < 0.1).astype(int), np.arange(n)


def steps_of(columns=COLUMNS, size=1.0, seed=0, landmarks=LANDMARKS):
    rng = np.random.default_rng(seed)
    levels = distance_levels(columns, EXACT_FLOAT64)
    return [
        PublicScaling(rng.normal(size=columns) * size, np.abs(rng.normal(size=columns)) * size),
        PublicKernel(
            rng.normal(size=columns), 8.0, rng.integers(-levels, levels + 1, (landmarks, columns)).astype(float), 3.0
        ),
        PublicProjection(rng.normal(size=landmarks), rng.normal(size=(landmarks, NUMBERS - 1)) * size, 2.0),
        UnitBall(1.0),
    ]


def round_of(steps, coef=None, radius=1.0, people=0):
    coef = np.zeros((NUMBERS, 2)) if coef is None else coef
    return SumRound(make_pipeline(*steps), np.zeros((1, len(coef))), (), coef, radius, people)


def sent(members, asked):
    row = asked if isinstance(asked, np.ndarray) else asked.to_row()
    return Batch.make(members.home("aggregator").identity, members.consortium, row)


def read(members, asked):
    return members.consortium.scheme.round_of(sent(members, asked))


def with_parameter(place, name, value):
    """Return the steps of an honest map with one parameter that no constructor would take."""
    steps = steps_of()
    setattr(steps[place], name, value)
    return steps


def row_with(old, new):
    """Return the bytes of an honest round, with a part of the header changed."""
    row = round_of(steps_of()).to_row().tobytes()
    assert row.count(old) == 1
    return np.frombuffer(row.replace(old, new), np.uint8)[None]


def unsound_rounds():
    kernel, projection, ball = steps_of()[1:]
    points, directions = kernel.points, projection.directions
    wrong = {  # values of one parameter of an honest map
        (0, "center"): [np.zeros((PEOPLE, COLUMNS)), np.zeros(1), np.full(COLUMNS, -1e300)],
        (0, "deviation"): [1.0],
        (1, "points"): [points + 0.3, points + 2 * LEVELS, points[:, :3], points[0]],  # off the grid, and beyond it
        (1, "distance"): [1e-200, -1.0, np.ones(2)],
        (1, "reach"): [5e-324, 1e300],
        (1, "center"): [np.zeros((PEOPLE, COLUMNS))],
        (2, "center"): [np.zeros((PEOPLE, LANDMARKS))],
        (2, "directions"): [directions * 1e-310, directions * 1e200, directions[:, :2]],
        (2, "reach"): [0.0],
        (3, "radius"): [1e-320],
        (3, "constant"): [1e200],
    }
    for (place, name), values in wrong.items():
        for number, value in enumerate(values):
            yield f"{name} {number} of step {place}", round_of(with_parameter(place, name, value))
    yield "more landmarks than agreed", round_of(steps_of(landmarks=41))
    scaling = PublicScaling(np.zeros(NUMBERS), np.ones(NUMBERS))
    yield "no ball", round_of([kernel, projection])
    yield "a student alone", row_with(b'["coef",[6,2]]', b'["coef",[12]]')
    yield "no kernel", round_of([projection, ball])
    yield "another order", round_of([projection, kernel, ball])
    yield "a step twice", round_of([kernel, projection, projection, ball])
    yield "a step after the ball", round_of([kernel, projection, ball, scaling])
    yield "a scaling in the middle", round_of([kernel, PublicScaling(np.zeros(3), np.ones(3)), projection, ball])
    yield "a tiny radius", round_of(steps_of(), radius=65536 / 1.797e308 * 4.5e3)
    yield "a huge radius", round_of(steps_of(), radius=1e300)
    yield "a huge student", round_of(steps_of(), coef=np.full((NUMBERS, 2), 1e300))
    yield "a subnormal student", round_of(steps_of(), coef=np.full((NUMBERS, 2), 1e-310))
    for people in ("1e999", "-1", "0.5", "true", '"1"', "null", "1201", "1" * 400, "1" * 5000, "[" * 5000):
        yield f"people {people[:9]}", row_with(b'"people":0', f'"people":{people}'.encode())
    names = b'["PublicScaling","PublicKernel","PublicProjection","UnitBall"]'
    for maps in (b'"PublicScaling"', b"3", b"null", b"[[]]", b"[]", b'{"a":1}'):
        yield f"maps {maps!r}", row_with(names, maps)
    yield "too many axes", row_with(b'["radius",[]]', b'["radius",[' + b",".join([b"1"] * 99) + b"]]")


@pytest.mark.rest
@pytest.mark.parametrize(("what", "asked"), list(unsound_rounds()))
def test_an_unsound_map_is_refused_before_it_sees_a_row(what, asked, members):
    before = members.ledger("hospital-0").state().spent
    X, y, ids = rows()
    with pytest.raises(ForgedMessageError, match="no round of a sum"):
        members.entity("hospital-0").cast(sent(members, asked), X, y, members.mailbox, entity_ids=ids)
    assert members.ledger("hospital-0").state().spent == before, what


HOSTILE = {
    "honest": ({}, {}),
    "long": ({"size": 1e20}, {"coef": np.full((NUMBERS, 2), 1e55), "radius": 1e-55}),
    "short": ({"size": 1e-40}, {"coef": np.full((NUMBERS, 2), 1e-55), "radius": 1e55}),
    "many columns": ({"columns": 200}, {"coef": np.full((NUMBERS, 2), 1e3), "radius": 1e-3}),
    "uneven student": ({"columns": 50}, {"coef": np.array([[1e60, 1e-60]] * NUMBERS)}),
}


def hostile(members, what):
    settings, student = HOSTILE[what]
    return settings, read(members, round_of(steps_of(**settings), **student))


@pytest.mark.parametrize("what", HOSTILE)
def test_a_persons_features_and_ballot_do_not_depend_on_the_other_rows(what, members):
    """BLAS uses other code for 400 rows than for 401. Exact to the bit, or the sum would move by all ballots."""
    settings, asked = hostile(members, what)
    assert asked.columns == settings.get("columns", COLUMNS)
    X, y, ids = rows(PEOPLE + 1, asked.columns)
    X[7:12] *= 1e300
    X[20] = steps_of(**settings)[1].points[0]
    whole = asked.features.transform(X)
    assert np.isfinite(whole).all()
    for count in (1, 2, 3, 255, PEOPLE):
        assert whole[:count].tobytes() == asked.features.transform(X[:count]).tobytes()
    assert whole.tobytes() == asked.features.transform(np.asfortranarray(X)).tobytes()
    terms = members.consortium
    one = ballots_of(terms.scheme, asked, X, y, ids)
    all_but_one = ballots_of(terms.scheme, asked, X[:-1], y[:-1], ids[:-1])
    moved = np.linalg.norm((one.totals - all_but_one.totals).astype(float))
    assert moved <= terms.teacher.norm
    assert (moved > 0) == (what != "short")  # which is rounded to nothing


@pytest.mark.parametrize("what", HOSTILE)
def test_a_person_who_leaves_takes_only_their_own_ballot_away(what, members):
    _, asked = hostile(members, what)
    X, y, _ = rows(PEOPLE, asked.columns)
    ids = np.random.default_rng(1).integers(0, 150, PEOPLE)

    def total(kept):
        return ballots_of(members.consortium.scheme, asked, X[kept], y[kept], ids[kept]).totals

    everybody = total(ids >= 0)
    for person in np.unique(ids)[::30]:
        np.testing.assert_array_equal(everybody - total(ids != person), total(ids == person))


def test_points_off_the_grid_would_let_one_row_move_all_ballots(members):
    """Planted fault: the map that is refused above, applied in spite of it; its products depend on the rows' number."""
    d = 200
    X = np.ones((PEOPLE + 1, d))
    X[:, 0] = X[:, -1] = 1e6
    points = np.zeros((3, d))
    points[:, 0], points[:, -1] = 1e6, -1e6
    points[:, 1:-1] = 0.3 * np.spacing(2e12) / 2
    products = [X[:count] @ (-2 * points.T) for count in (PEOPLE, PEOPLE + 1)]
    if np.array_equal(products[0], products[1][:PEOPLE]):
        pytest.skip("this machine's BLAS adds in one order for both")
    assert (products[0] != products[1][:PEOPLE]).any(axis=1).sum() > 1


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hospital_answers_whatever_its_rows_are(what, members):
    settings, student = HOSTILE[what]
    kernel = steps_of(**settings)[1]
    asked = read(members, round_of(steps_of(**settings)[1:], **student))
    X, y, ids = rows(PEOPLE, asked.columns)
    X[0] = kernel.points[0] * kernel.reach / distance_levels(asked.columns, EXACT_FLOAT64) + kernel.center
    X[1], X[2], X[3] = 1.79e308, -1.79e308, 5e-324
    longest = members.consortium.teacher.norm
    for people in (ids, np.zeros_like(ids)):
        found = ballots_of(members.consortium.scheme, asked, X, y, people)
        assert found.totals.shape == (2, NUMBERS)
        assert found.norm_squared == longest**2
        assert np.linalg.norm(found.totals.astype(float)) <= len(np.unique(people)) * longest


def test_a_row_that_a_map_makes_infinite_casts_zeros(members, monkeypatch):
    """No accepted map does; should one, the hospital answers all the same."""
    asked = read(members, round_of(steps_of()))
    X, y, ids = rows()
    kept = np.ones(PEOPLE, dtype=bool)
    made = {3: np.nan, 5: np.inf, 7: 1e200}
    kept[list(made)] = False

    def broken(features, some, shards, n_features):
        vectors = features.transform(some)
        for row, value in made.items():
            vectors[(some == X[row]).all(axis=1)] = value
        return vectors

    monkeypatch.setattr(federated_casting, "features_of_private", broken)
    found = ballots_of(members.consortium.scheme, asked, X, y, ids).totals
    without = ballots_of(members.consortium.scheme, asked, X[kept], y[kept], ids[kept]).totals
    np.testing.assert_array_equal(found, without)


def test_the_hash_of_a_partys_shares_confirms_no_guess_of_a_hospitals_sum(tmp_path):
    """Two colluding parties hold two shares of three, the name of the splitting, and the third party's statement."""
    members = terms_of(tmp_path)
    batch, (X, y, ids) = sent(members, round_of(steps_of())), rows()
    members.mailbox.put_batch(batch)
    members.entity("hospital-0").cast(batch, X, y, members.mailbox, entity_ids=ids)
    payloads = members.payloads(batch, "hospital-0")
    numbers = (2 * NUMBERS,)
    total = added([payload[HEAD_BYTES:] for payload in payloads], numbers)
    held, _ = ComputingParty(members.home(PARTIES[2]))._held(batch, members.mailbox)
    split, digest = json.loads(statement_of(members.consortium, batch, held, None))["held"]["hospital-0"]
    known = sum(decode(payload[HEAD_BYTES:], numbers) for payload in payloads[:2])
    share = encode((total.astype(object) - known) % MODULUS)
    salts = [payload[SPLIT_NAME_BYTES:HEAD_BYTES] for payload in payloads]
    assert len(set(salts)) == 3
    assert {len(salt) for salt in salts} == {SALT_BYTES} == {32}
    # With the third party's salt the hash is confirmed, and with nothing that the two hold.
    assert hashlib.sha256(bytes.fromhex(split) + salts[2] + share).hexdigest() == digest
    for guessed in (b"", *salts[:2], bytes(SALT_BYTES)):
        assert hashlib.sha256(bytes.fromhex(split) + guessed + share).hexdigest() != digest
