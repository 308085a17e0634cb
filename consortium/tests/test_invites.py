"""Invites and the settings of a home: what comes back, and what is refused before it is used."""

import zipfile
from pathlib import Path

import pytest

from tutelage.exceptions import InvalidDataError
from tutelage_consortium.files import MOST_BYTES_OF_A_DOCUMENT
from tutelage_consortium.invites import Invite, Place

TERMS = {"name": "Hospitals", "classes": ["no", "yes"], "hospitals": {"one": 100}}
INVITE = Invite(
    "one",
    TERMS,
    "registry.example.org:8002",
    None,
    {"ca.pem": b"public", "keys/own.key": b"\0\xff"},
)


def test_an_invite_comes_back_whole_and_only_its_owner_can_read_it(tmp_path):
    path = tmp_path / "one.invite"
    INVITE.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    found = Invite.load(path)
    assert found == INVITE
    found.unpack(tmp_path / "kit")
    for name, content in INVITE.kit.items():
        unpacked = tmp_path / "kit" / name
        assert unpacked.read_bytes() == content
        assert unpacked.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        INVITE.save(path)


OUTSIDE = [
    "kit/",
    "kit/..",
    "kit/a/../../out",
    "../kit/out",
    "/kit/out",
    "other/out",
    "kit\\..\\out",
]


def added(path: Path, name: str, content: bytes) -> Path:
    INVITE.save(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return path


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_file_that_would_leave_its_folder_is_refused(name, tmp_path):
    with pytest.raises(
        InvalidDataError, match=r"is no complete invite\. Ask the coordinator for it again"
    ):
        Invite.load(added(tmp_path / "one.invite", name, b"x"))


def test_an_invite_that_would_fill_the_memory_or_the_disk_is_refused(tmp_path):
    packed = added(tmp_path / "bomb.invite", "kit/zeros", bytes(MOST_BYTES_OF_A_DOCUMENT))
    assert packed.stat().st_size < 10_000
    many = tmp_path / "many.invite"
    INVITE.save(many)
    with zipfile.ZipFile(many, "a") as archive:
        for number in range(100):
            archive.writestr(f"kit/{number}", b"")
    large = tmp_path / "large.invite"
    large.touch()
    with large.open("r+b") as file:
        file.truncate(2**40)
    for path in (packed, many, large):
        with pytest.raises(InvalidDataError):
            Invite.load(path)


def test_a_home_remembers_how_its_member_takes_part(tmp_path):
    place = Place(terms=TERMS, mailbox="/mail", data="/rows.csv", id="patient", label="ill")
    with pytest.raises(InvalidDataError, match="does not exist"):
        Place.load(tmp_path)
    place.save(tmp_path)
    assert Place.load(tmp_path) == place
    other = Place(terms=TERMS, mailbox="/other", server="registry.example.org:8002")
    other.save(tmp_path)
    assert Place.load(tmp_path) == other
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    whole = path.read_bytes()
    for damaged in (b"", b"{}", whole[:-9], whole.replace(b'"mailbox"', b'"mailbix"')):
        path.write_bytes(damaged)
        with pytest.raises(InvalidDataError, match=r"is damaged\. Join again with the invite"):
            Place.load(tmp_path)
