import gzip
import hashlib
import io
import zipfile

import numpy as np
import pytest

from tutelage.exceptions import InvalidDataError
from tutelage_reproductions.datasets import diabetes, releases
from tutelage_reproductions.datasets.diabetes import (
    FEATURES,
    HospitalStays,
    load_diabetes,
    split_by_patient,
)

KEY = b"the key of a test"
HEADER = (
    "encounter_id,patient_nbr,race,gender,age,weight,admission_type_id,discharge_disposition_id,admission_source_id,"
    "time_in_hospital,num_lab_procedures,num_procedures,num_medications,number_outpatient,number_emergency,"
    "number_inpatient,number_diagnoses,A1Cresult,metformin,insulin,change,diabetesMed,readmitted"
)
STAYS = [
    "12,7,Caucasian,Female,[0-10),?,6,25,1,1,41,0,1,0,0,0,1,None,No,No,No,No,NO",
    "15,7,?,Male,[90-100),[75-100),1,11,7,3,59,2,18,4,5,6,9,>8,Up,Down,Ch,Yes,>30",
    "13,8,AfricanAmerican,Unknown/Invalid,[70-80),?,2,1,7,2,11,5,13,2,0,1,6,Norm,Steady,Steady,Ch,Yes,<30",
]


@pytest.fixture
def nothing_found(monkeypatch, tmp_path):
    """No data and no network on this machine; the cache is empty."""
    monkeypatch.delenv("TUTELAGE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(releases, "SYSTEM_FOLDER", tmp_path / "system")
    return tmp_path / "xdg" / "tutelage" / "diabetes130"


@pytest.fixture
def tiny(monkeypatch, nothing_found):
    """An edition of three stays in the place of the real one."""
    table = "\n".join([HEADER, *STAYS, ""]).encode()
    digest = hashlib.sha256(table).hexdigest()
    monkeypatch.setattr(diabetes, "_SHA256", digest)
    return table


@pytest.fixture
def stays():
    """4,000 stays of 1,500 patients, a tenth of them with early readmission."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 30, (4000, len(FEATURES)))
    X[:, FEATURES.index("discharge_disposition_id")] = rng.choice([1, 3, 6, 11, 13], 4000)
    y = (rng.random(4000) > 0.1139).astype(np.int64)
    return HospitalStays(
        X, y, patients=rng.integers(0, 1500, 4000), encounters=rng.permutation(4000)
    )


@pytest.fixture
def published(data_folder):
    if not (data_folder / "diabetes130.csv.gz").is_file():
        pytest.skip("diabetes130.csv.gz is not in TUTELAGE_DATA")
    return load_diabetes(data_folder)


def packed(member: str, content: bytes) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("IDS_mapping.csv", "admission_type_id,description\n")
        file.writestr(member, content)
    return archive.getvalue()


# reading


def test_stays_are_read_column_by_column(tiny, tmp_path):
    (tmp_path / "diabetic_data.csv").write_bytes(tiny)
    read = load_diabetes(tmp_path)
    assert read.X.tolist() == [
        [0, 0, 6, 25, 1, 1, 41, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0],
        [1, 9, 1, 11, 7, 3, 59, 2, 18, 4, 5, 6, 9, 3, 3, 1, 1, 1],
        [2, 7, 2, 1, 7, 2, 11, 5, 13, 2, 0, 1, 6, 1, 2, 2, 1, 1],
    ]
    assert read.y.tolist() == [1, 1, 0]  # PATE 2017: class 0 is readmission within 30 days
    assert read.patients.tolist() == [7, 7, 8]
    assert read.encounters.tolist() == [12, 15, 13]
    assert len(read.feature_names) == 18
    assert not {"patient_nbr", "encounter_id", "readmitted"} & set(read.feature_names)


# finding


@pytest.mark.parametrize(
    "name", ["diabetes130.csv.gz", "diabetic_data.csv", "diabetes130/diabetic_data.csv.gz"]
)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n"], ids=["unix", "windows"])
def test_the_file_is_read_as_people_have_it(name, ending, tiny, tmp_path, monkeypatch):
    path = tmp_path / "data" / name
    path.parent.mkdir(parents=True)
    content = tiny.replace(b"\n", ending)
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert len(load_diabetes(tmp_path / "data")) == 3
    monkeypatch.setenv("TUTELAGE_DATA", str(tmp_path / "data"))
    assert load_diabetes().patients.tolist() == [7, 7, 8]


def serve(content: bytes, monkeypatch):
    def retrieve(url, known_hash, name, folder):
        assert known_hash is None  # UCI publishes none of its archive: that of the table decides
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        return folder / name

    monkeypatch.setattr(releases.pooch, "retrieve", retrieve)


def test_a_download_is_kept_in_the_cache(tiny, nothing_found, monkeypatch):
    serve(packed("dataset_diabetes/diabetic_data.csv", tiny), monkeypatch)
    assert len(load_diabetes(download=True)) == 3
    assert len(list(nothing_found.iterdir())) == 1
    monkeypatch.setattr(releases.pooch, "retrieve", pytest.fail)
    assert len(load_diabetes()) == 3


@pytest.mark.parametrize(
    ("member", "content", "message"),
    [
        ("diabetic_data.csv", b"other", "SHA-256"),
        ("other.csv", b"", "damaged"),
        (None, b"<html>", "SHA-256"),
    ],
)
def test_a_download_of_something_else_is_refused(
    member, content, message, tiny, nothing_found, monkeypatch
):
    serve(packed(member, content) if member else content, monkeypatch)
    with pytest.raises(InvalidDataError, match=message):
        load_diabetes(download=True)


# splitting


def test_no_patient_is_in_two_parts_and_every_stay_in_at_most_one(stays):
    split = split_by_patient(stays, key=KEY, balanced=False)
    parts = (split.private, split.public, split.test)
    patients = [set(part.patients.tolist()) for part in parts]
    assert not patients[0] & patients[1] | patients[0] & patients[2] | patients[1] & patients[2]
    could_return = ~np.isin(
        stays.X[:, FEATURES.index("discharge_disposition_id")], diabetes.NO_RETURN
    )
    kept = np.concatenate([part.encounters for part in parts])
    assert sorted(kept) == sorted(stays.encounters[could_return])
    shares = [len(ids) / sum(map(len, patients)) for ids in patients]
    assert shares == pytest.approx([0.65, 0.15, 0.2], abs=0.05)


@pytest.mark.parametrize("balanced", [True, False])
def test_a_patient_who_leaves_or_changes_moves_nobody_else(stays, balanced):
    gone = int(stays.patients[0])
    others = stays.patients != gone
    changed = HospitalStays(
        np.where(others[:, None], stays.X, 1),
        np.where(others, stays.y, 0),
        stays.patients,
        stays.encounters,
    )
    before, after, without = (
        split_by_patient(table, key=KEY, balanced=balanced)
        for table in (stays, changed, stays.select(others))
    )
    for name in ("private", "public", "test"):
        kept = [getattr(split, name) for split in (before, after, without)]
        ids = [part.encounters[part.patients != gone].tolist() for part in kept]
        assert ids[0] == ids[1] == ids[2]


# the data set


def test_the_published_table_has_the_known_size(published):
    assert published.X.shape == (diabetes.ROWS, 18)
    assert len(np.unique(published.patients)) == diabetes.PATIENTS
    assert len(np.unique(published.encounters)) == diabetes.ROWS
    assert np.bincount(published.y).tolist() == [11_357, 90_409]
    could_return = ~np.isin(
        published.X[:, FEATURES.index("discharge_disposition_id")], diabetes.NO_RETURN
    )
    assert 1 - published.y[could_return].mean() == pytest.approx(
        diabetes.SHARE_WITHIN_30_DAYS, abs=5e-5
    )
    drug = published.X[could_return, FEATURES.index("diabetesMed")]
    assert 1 - drug.mean() == pytest.approx(diabetes.SHARE_WITHOUT_DRUG, abs=5e-5)
    # 34,104 training and 12,702 evaluation rows of PATE 2017 are twice the stays without a diabetes drug.
    assert 2 * np.sum(published.X[:, FEATURES.index("diabetesMed")] == 0) == 34_104 + 12_702
