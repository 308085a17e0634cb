import json
import re
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.digests import canonical
from tutelage.exceptions import InvalidDataError, InvalidParameterError, TutelageError
from tutelage.features import Schema
from tutelage.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, NoisySum
from tutelage.privacy import ONE_ENTITY, ONE_TEACHER, NeighboringRelation, PrivacyUnit
from tutelage_consortium.consortium import Consortium
from tutelage_consortium.keys import Identity, Role
from tutelage_consortium.terms import _word

ENTITIES = tuple(Identity.generate(f"hospital{place}", Role.ENTITY).member for place in range(5))
ADDRESSES = ["127.0.0.1:7001", "127.0.0.1:7002", "[::1]:7003"]
PARTIES = tuple(
    Identity.generate(f"party{place}", Role.COMPUTING, ADDRESSES[place]).member
    for place in range(3)
)
AGGREGATOR = Identity.generate("aggregator", Role.AGGREGATOR).member
PATIENTS = PrivacyUnit("patient_id", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)

SECURE = Consortium(
    name="Hospitals of the north", members=(*ENTITIES, AGGREGATOR, *PARTIES), classes=tuple("abcdefghij"),
    mechanism=GNMax(40), teachers_per_entity=50, quorum=4, colluding=1, unit=ONE_TEACHER,
)  # fmt: skip
PEOPLE = {"schema": Schema({"age": (0, 89)}), "people": (300, 200, 100, 400, 500)}
SUM = replace(SECURE, mechanism=NoisySum(8), teachers_per_entity=1, unit=PATIENTS, **PEOPLE)


@pytest.mark.parametrize("consortium", [
    SECURE,
    replace(SECURE, mechanism=ConfidentGNMax(200, 150, 40), unit=PATIENTS, name="Ñandú — 北"),
    SUM,
], ids=lambda consortium: type(consortium.mechanism).__name__)  # fmt: skip
def test_a_consortium_is_saved_and_loaded(consortium, tmp_path):
    path = tmp_path / "new" / "consortium.json"
    consortium.save(path)
    loaded = Consortium.load(path)
    assert loaded.as_dict() == consortium.as_dict()
    assert loaded.roster_hash == consortium.roster_hash
    loaded.save(path)  # the same bytes


OTHERS: dict[str, Any] = {
    "name": "Hospitals of the south",
    "members": (ENTITIES[1], ENTITIES[0], *ENTITIES[2:], AGGREGATOR, *PARTIES),
    "classes": tuple("abcdefghijk"),
    "mechanism": GNMax(40.5),
    "teachers_per_entity": 51,
    "quorum": 5,
    "colluding": 2,
    "unit": PATIENTS,
    "identifier": "0" * 32,
    "roster": 1,
    "size_test": False,
}


OTHER_SUMS: list[dict[str, Any]] = [
    {"mechanism": NoisySum(9)},
    {"report": True},
    {"people": (300, 200, 100, 400, 501)},
    {"steps": (1024, 1024, 1024, 1024, 512)},
    *({"schema": Schema({"age": (0, most)})} for most in (90, 91)),
]


def test_the_digest_covers_every_field():
    assert set(OTHERS) == {field.name for field in fields(Consortium)} - {
        "people",
        "steps",
        "schema",
        "method",
        "method_hash",
        "report",
    }
    others = [SECURE, SUM, *(replace(SECURE, **{name: value}) for name, value in OTHERS.items())]
    others += [replace(SUM, **change) for change in OTHER_SUMS]
    assert len({one.roster_hash for one in others}) == len(others)
    amended = len({"members", "roster", "people", "steps"})  # which are no terms
    assert len({one.fingerprint for one in others}) == len(others) - amended


def test_the_terms_stay_the_same_when_members_are_amended_or_columns_reordered():
    other = Identity.generate("hospital0", Role.ENTITY).member
    for amended in ({"members": (other, *SECURE.members[1:])}, {"roster": 1}):
        after = replace(SECURE, **amended)
        assert after.fingerprint == SECURE.fingerprint
        assert after.words != SECURE.words
    columns: dict[str, Any] = {"age": (0, 89), "work": ["private", "public"]}
    one, other = (
        replace(SUM, schema=Schema(dict(given)))
        for given in (columns.items(), reversed(columns.items()))
    )
    assert one.fingerprint == other.fingerprint  # in whichever order columns are written down


def test_words_stand_for_the_roster_and_can_be_spoken():
    assert re.fullmatch(
        r"([bdfghjklmnprstvz][aiou][bdfghjklmnprstvz][aiou][bdfghjklmnprstvz] ?){6}", SECURE.words
    )
    assert _word(0x7F00) == "lusab"  # 127.0 in arXiv:0901.4016
    assert _word(0x0001) == "babad"


@pytest.mark.parametrize("field", ["signing_key", "sealing_key", "address", "certificate"])
def test_the_digest_covers_every_field_of_a_member(field):
    other = Identity.generate("party2", Role.COMPUTING, "127.0.0.1:9").member
    member = replace(PARTIES[2], **{field: getattr(other, field)})
    assert replace(SECURE, members=(*SECURE.members[:-1], member)).roster_hash != SECURE.roster_hash


@pytest.mark.parametrize(("terms", "changes", "why"), [
    (SECURE, {"classes": ("a", "a")}, "classes"),
    (SECURE, {"mechanism": LNMax(20)}, "Laplace noise have no exact sampler"),
    (SECURE, {"mechanism": InteractiveGNMax(200, 150, 40, 0.9)}, "predictions"),
    (SECURE, {"members": (ENTITIES[0], AGGREGATOR, *PARTIES), "quorum": 1, "colluding": 0}, "include 2 or more"),
    (SECURE, {"members": (*ENTITIES, *PARTIES)}, "include 1 with the role aggregator. Got 0"),
    (SECURE, {"teachers_per_entity": 0}, "teachers_per_entity"),
    (SECURE, {"quorum": 6}, "`quorum` of Consortium must be at most 5"),
    (SECURE, {"colluding": 4}, "`colluding` of Consortium must be below `quorum`"),
    (SECURE, {"name": "a\nb"}, "printable"),
    (SECURE, {"people": (1,) * 5}, "`people` of Consortium must be left out"),
    (SUM, {"schema": None}, "`schema` of Consortium must be a Schema if `mechanism` is a NoisySum. Got None."),
    (SUM, {"people": ()}, "`people` of Consortium must have 5 numbers, one for each entity. Got 0"),
    (SUM, {"people": (1, 1, 1, 1, 2**27)}, "`people` of Consortium"),
    (SUM, {"teachers_per_entity": 2}, "`teachers_per_entity` of Consortium must be at most 1"),
    (SUM, {"unit": ONE_ENTITY}, "must be a person or a row if `mechanism` is a NoisySum"),
])  # fmt: skip
def test_terms_that_make_no_sense_are_refused(terms, changes, why):
    with pytest.raises(InvalidParameterError, match=why):
        replace(terms, **changes)


@pytest.mark.parametrize(("place", "changes", "what"), [
    (1, {"name": "HOSPITAL0"}, "name"),
    (5, {"sealing_key": ENTITIES[0].sealing_key}, "key"),
    (7, {"address": PARTIES[0].address}, "address"),
])  # fmt: skip
def test_no_two_members_share_what_tells_them_apart(place, changes, what):
    members = list(SECURE.members)
    members[place] = replace(members[place], **changes)
    with pytest.raises(InvalidParameterError, match=f"each have a different .*{what}"):
        replace(SECURE, members=tuple(members))


@pytest.mark.parametrize(("terms", "changes", "why"), [
    (SECURE, {"format": 2}, r"another format \(2\)"),
    (SECURE, {"mechanism": {"kind": "GNMax", "sigma": "40"}}, "sigma"),
    (SECURE, {"mechanism": {"kind": "Consortium"}}, "`mechanism` of Consortium"),
    (SECURE, {"unit": {"name": "row", "neighboring": "NEAR"}}, "`neighboring` has a value that is not known"),
    (SUM, {"schema": {"trees": 3}}, "no complete consortium file"),
    (SECURE, {"more": 1}, "no complete consortium file"),
    (SECURE, {"mechanism": {"kind": "GNMax"}}, "no complete consortium file"),
])  # fmt: skip
def test_a_file_that_says_something_else_is_refused(terms, changes, why, tmp_path):
    path = tmp_path / "consortium.json"
    path.write_text(json.dumps({**terms.as_dict(), **changes}))
    with pytest.raises((InvalidDataError, InvalidParameterError), match=why):
        Consortium.load(path)


@given(data=st.data())
def test_a_damaged_file_never_passes_for_the_same_agreement(data, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "damaged.consortium.json"
    text = bytearray(canonical(SECURE.as_dict()).encode())
    place = data.draw(st.integers(0, len(text) - 1))
    if data.draw(st.booleans()):
        text[place] ^= data.draw(st.integers(1, 255))
    else:
        del text[place : place + data.draw(st.integers(1, 100))]
    path.write_bytes(text)
    try:
        loaded = Consortium.load(path)
    except TutelageError:
        return
    assert loaded.roster_hash != SECURE.roster_hash
