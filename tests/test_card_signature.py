"""A signed card: what passes its check, and every fault that must not."""

import hashlib
import json
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test_card import put
from test_cli_card import refusal
from tutelage import GNMax, LabelingSession, Ledger, SimulationNoise, VoteHistogram
from tutelage._internal.releases import MANIFEST, SIGNATURE, Manifest
from tutelage.cli import main
from tutelage.exceptions import InvalidDataError
from tutelage.privacy import ONE_TEACHER
from tutelage.reporting.signature import check_signature, signature_of
from tutelage.signing import SigningKey

EPSILON = ("guarantee", "epsilon", "epsilon")
SIGNED = ("card.json", "card.md", "card.html")
SIGN = ("--ledger", "a.ledger", "--output", "out", "--sign", "keys/officer.private.json")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SigningKey]:
    """A folder with the signed card of a ledger that lies beside it, and the signer, whose keys are there too."""
    folder, made = tmp_path_factory.mktemp("signed"), SigningKey.generate("officer")
    made.save(folder / "keys")
    Ledger.create(folder / "a.ledger", epsilon=2.0, delta=1e-5, unit=ONE_TEACHER)
    ask(folder, 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["tutelage", "card", *SIGN])
        with pytest.raises(SystemExit, match="0"):
            main()
    return folder, made


@pytest.fixture
def officer(kept: tuple[Path, SigningKey]) -> SigningKey:
    return kept[1]


@pytest.fixture
def signed(kept: tuple[Path, SigningKey], tmp_path: Path) -> Path:
    """A copy of that folder."""
    return shutil.copytree(kept[0], tmp_path / "signed")


def test_a_key_is_made_once_and_signs(called, kept, tmp_path):
    folder = shutil.copytree(kept[0], tmp_path / "again")
    made = called("key", "other", "--folder", "own", cwd=folder)
    private = folder / "own" / "other.private.json"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert SigningKey.load(private).public.fingerprint in made.stdout
    before = private.read_bytes()
    assert "never overwritten" in refusal(called("key", "other", "--folder", "own", cwd=folder), 1)
    assert private.read_bytes() == before
    assert (
        called("card", "out", "--ledger", "a.ledger", "--sign", str(private), cwd=folder).returncode
        == 0
    )
    checked = called("card", "out", "--verify", "own/other.public.json", cwd=folder)
    assert checked.returncode == 0, checked.stderr


def verified(called, folder: Path, *options: str):
    return called("card", "out", "--verify", "keys/officer.public.json", *options, cwd=folder)


def released_again(folder: Path, officer: SigningKey) -> None:
    """Make a manifest of the files that a folder has now, and sign it."""
    record = json.loads((folder / MANIFEST).read_text())
    record["sha256"] = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in record["sha256"]
    }
    (folder / MANIFEST).write_text(json.dumps(record))
    (folder / SIGNATURE).write_text(signature_of(folder, "officer", officer.sign))


def ask(folder: Path, row: float = 99.0, **options: Any) -> None:
    """Ask about one more query through the ledger."""
    votes = VoteHistogram(np.array([[230, 15, 5]]), 250)
    LabelingSession(votes, GNMax(sigma=40), Ledger.open(folder / "a.ledger"), **options).ask(
        np.array([[row]])
    )


@pytest.mark.rest
def test_a_signed_card_is_verified_with_and_without_its_ledger(called, signed, officer):
    alone, beside = verified(called, signed), verified(called, signed, "--ledger", "a.ledger")
    for result in (alone, beside):
        assert result.returncode == 0, result.stderr
        assert "out is the release that officer signed." in result.stdout
        assert officer.public.fingerprint in result.stdout
    assert (
        "a.ledger is intact, contains the head on the card, and names this release."
        in beside.stdout
    )
    ask(signed)
    after = verified(called, signed, "--ledger", "a.ledger")
    assert after.returncode == 0
    assert (
        "Releases or tests since the card was made: 1. The ε of the card covers them."
        in after.stdout
    )


def test_a_simulated_release_ends_what_a_signed_card_covers(called, signed):
    ask(signed, noise=SimulationNoise(0))
    after = verified(called, signed, "--ledger", "a.ledger")
    assert after.returncode == 0
    assert "The ε of the card no longer holds: noise was simulated in one of them." in after.stdout


@pytest.mark.parametrize(("name", "change", "said"), [
    ("card.html", lambda text: text.replace("guess the true version", "guess"), "does not show what card.json says"),
    ("card.md", lambda text: text.replace("Verdict on ε: **", "**very "), "does not show what card.json says"),
    ("card.json", lambda text: json.dumps(put(json.loads(text), EPSILON, 0.01)), "what was released proves"),
])  # fmt: skip
def test_a_signed_card_that_shows_something_else_or_states_less_than_is_proved_is_refused(
    name, change, said, called, signed, officer
):
    path = signed / "out" / name
    path.write_text(change(path.read_text()))
    released_again(signed / "out", officer)
    assert said in refusal(verified(called, signed), 1)


@pytest.mark.parametrize("name", [*SIGNED, SIGNATURE])
def test_every_changed_byte_is_found(name, signed, officer):
    path = signed / "out" / name
    original = path.read_bytes()
    for place in [*range(0, len(original), 1 + len(original) // 200), len(original)]:
        changed = bytearray(original + b" " * (place == len(original)))
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(InvalidDataError):
            check_signature(signed / "out", "officer", officer.public.has_signed)
    path.write_bytes(original)
    assert check_signature(
        signed / "out", "officer", officer.public.has_signed
    ) == Manifest.read_whole(signed / "out")


@pytest.mark.parametrize("planted", ["more/card.html", ".notes"])
def test_what_nobody_signed_is_named_and_has_an_exit_code_of_its_own(planted, called, signed):
    (signed / "out" / planted).parent.mkdir(exist_ok=True)
    (signed / "out" / planted).write_bytes(b"")
    ledger = called("ledger", "verify", "a.ledger", "--release", "out", cwd=signed)
    for result in (verified(called, signed), ledger):
        assert f"not part of the release: {Path(planted).parts[0]}. Remove them" in refusal(
            result, 4
        )


def test_no_key_is_put_into_a_folder_of_results(called, signed):
    for folder in ("out", "out/keys"):
        assert "handed over whole" in refusal(
            called("key", "other", "--folder", folder, cwd=signed), 1
        )
    assert verified(called, signed).returncode == 0


def test_no_file_and_another_file_in_the_place_of_a_signature_are_refused(called, signed):
    (signed / "out" / "card.md").unlink()
    assert "card.md cannot be read" in refusal(verified(called, signed), 1)
    for content in (b"\xff", b"[" * 60_000, b'{"file": "release signature", "format": 1}'):
        (signed / "out" / SIGNATURE).write_bytes(content)
        assert "is not a release signature" in refusal(verified(called, signed), 1)
    (signed / "out" / SIGNATURE).unlink()
    assert f"{SIGNATURE} cannot be read" in refusal(verified(called, signed), 1)


def test_another_key_of_the_same_name_is_refused(called, signed):
    SigningKey.generate("officer").save(signed / "other")
    result = called("card", "out", "--verify", "other/officer.public.json", cwd=signed)
    assert "was not signed with the key of officer, or was changed" in refusal(result, 1)


def test_the_signature_of_another_release_is_refused(signed, officer):
    out, other = signed / "out", signed / "other"
    shutil.copytree(out, other)
    (other / "card.json").write_text("{}")
    released_again(other, officer)
    shutil.copy(other / SIGNATURE, out / SIGNATURE)
    with pytest.raises(
        InvalidDataError, match=r"manifest\.json was changed after officer signed it"
    ):
        check_signature(out, "officer", officer.public.has_signed)


@pytest.mark.rest
def test_a_ledger_without_the_signed_head_is_refused(called, signed):
    shutil.copy(signed / "a.ledger", signed / "old.ledger")
    ask(signed)
    assert called("card", *SIGN, cwd=signed).returncode == 0
    assert verified(called, signed, "--ledger", "a.ledger").returncode == 0
    Ledger.create(signed / "new.ledger", epsilon=2.0, delta=1e-5, unit=ONE_TEACHER)
    for ledger in ("old.ledger", "new.ledger"):
        refused = refusal(verified(called, signed, "--ledger", ledger), 1)
        assert "is another ledger, or was rolled back" in refused


def test_no_signature_stays_beside_a_card_that_it_is_not_of(called, signed):
    stated = ("--state", "controller=A hospital", "--ledger", "a.ledger")
    assert called("card", "out", *stated, cwd=signed).returncode == 0
    assert not (signed / "out" / SIGNATURE).exists()
    again = called("card", "out", "--sign", "keys/officer.private.json", cwd=signed)
    assert again.returncode == 0, again.stderr
    assert verified(called, signed).returncode == 0


@pytest.mark.parametrize(("options", "code", "said"), [
    (("--verify", "keys/officer.public.json"), 2, "Name the results folder to check."),
    (("out", "--verify", "keys/officer.private.json"), 1, "public file of a signer"),
    (("out", "--sign", "keys/officer.public.json"), 1, "chmod 600"),
])  # fmt: skip
def test_wrong_calls_are_refused_in_a_sentence(options, code, said, called, signed):
    before = {path: path.read_bytes() for path in (signed / "out").iterdir()}
    assert said in refusal(called("card", *options, cwd=signed), code)
    assert {path: path.read_bytes() for path in (signed / "out").iterdir()} == before
