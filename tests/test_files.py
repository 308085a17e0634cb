"""Arrays in files: what they are is read from their headers, and what nobody can use is never unpacked."""

import io
import json
import struct
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

from tutelage._internal import extras
from tutelage._internal.extras import install
from tutelage._internal.files import read_arrays
from tutelage.ballots import VoteHistogram
from tutelage.exceptions import InvalidDataError


@pytest.fixture
def nothing_unpacks(monkeypatch):
    def unpack(*_: object, **__: object) -> None:
        pytest.fail("an array was unpacked")

    monkeypatch.setattr(np, "load", unpack)


def header(shape: tuple[int, ...], descr: str) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


@pytest.mark.usefixtures("nothing_unpacks")
@pytest.mark.parametrize(("counts", "message"), [
    (np.zeros((3, 2)), "must be integers"),
    (np.ones(3, dtype=int), r"Got shape \(3,\)"),
    (np.ones((5, 2), dtype=int), r"must hold votes on 3 queries.* Got 5\."),
])  # fmt: skip
def test_votes_of_the_wrong_form_are_refused_by_their_headers(counts, message, tmp_path):
    np.savez(tmp_path / "votes.npz", counts=counts)
    with pytest.raises(InvalidDataError, match=message):
        VoteHistogram.load(tmp_path / "votes.npz", n_queries=3)


@pytest.mark.parametrize(
    "content",
    [
        header((2**40, 10), "<i8"),
        header((3, 2), "<i8") + bytes(8 * 6 + 1),
        header((2**60,), "|S0"),
        header((-3, -2), "<i8") + bytes(8 * 6),
        header((2,), "|O"),
        b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b" " * 50_000,
        b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 9000,
    ],
    ids=["cut", "longer", "no length", "negative", "objects", "long header", "deep"],
)
@pytest.mark.usefixtures("nothing_unpacks")
def test_a_header_that_lies_is_refused(content, tmp_path):
    with zipfile.ZipFile(tmp_path / "votes.npz", "w") as file:
        file.writestr("counts.npy", content)
    with pytest.raises(
        InvalidDataError, match=r"is not a readable npz file of plain arrays|would unpack to more"
    ):
        read_arrays(tmp_path / "votes.npz")


def test_a_file_that_is_replaced_after_its_headers_were_read_is_refused(tmp_path):
    np.savez(tmp_path / "votes.npz", counts=np.ones((3, 2), dtype=int))
    arrays = read_arrays(tmp_path / "votes.npz")
    np.savez(tmp_path / "votes.npz", counts=np.ones((3000, 2), dtype=int))
    with pytest.raises(InvalidDataError, match="is not a readable npz"):
        arrays["counts"]


@pytest.mark.parametrize(("origin", "command"), [
    ({"url": "https://example.org/tutelage.whl", "archive_info": {}}, "pip install 'tutelage[torch]'"),
    ({"url": "file:///home/my%20code/tutelage", "dir_info": {"editable": True}},
     "pip install '/home/my code/tutelage[torch]'"),
    ({"url": "file:///a/tutelage-1-py3-none-any.whl", "archive_info": {}},
     "pip install '/a/tutelage-1-py3-none-any.whl[torch]'"),
])  # fmt: skip
def test_an_extra_is_added_from_where_the_package_was_installed(origin, command, monkeypatch):
    monkeypatch.setattr(
        extras, "distribution", lambda _: SimpleNamespace(read_text=lambda _: json.dumps(origin))
    )
    assert install("torch") == command
