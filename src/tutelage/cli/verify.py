"""Checks of a release that is at hand: its signature, hashes, numbers and pages, and what its student's file states."""

import re
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from tutelage._internal.gate import read_text
from tutelage._internal.outputs import form
from tutelage._internal.releases import STUDENT_FILE, Manifest
from tutelage.cli.ledger import open_to_read
from tutelage.cli.text import refuse_others, say, write_new
from tutelage.exceptions import ConfigError, InvalidDataError
from tutelage.ledger.history import History
from tutelage.published import card_of
from tutelage.publishing.proof import prove
from tutelage.reporting import PrivacyCard, read_card
from tutelage.reporting.evidence import MANIFEST_HASH, disagreements, evidence_of
from tutelage.reporting.registry import FIRST_KEY, entry_of
from tutelage.reporting.signature import check_signature
from tutelage.students.store import evidence_in

_ENTRY = form("an entry for the registry", lambda path: path.read_text().startswith(FIRST_KEY))
_ENTRY_NAME = re.compile(r"[a-z0-9_]+\.yaml")


class VerifiedRelease(NamedTuple):
    """A card that was proved, the hash of its file, and why its ε no longer holds by its ledger, if it does not."""

    card: PrivacyCard
    hash: str
    outdated: str = ""


def check_release(
    results: Path, *, key: Path | None, ledger: Path | None, onnx: Path | None
) -> VerifiedRelease:
    """Check a folder, by its signature if there is a `key`, and against its ledger and an ONNX file, if given."""
    if not results.is_dir() and results.name != "card.json":
        raise ConfigError(
            f"The folder of a card, or its card.json, is needed for this check. Got {results}."
        )
    folder = results if results.is_dir() else results.parent
    trust = f"{folder} agrees with its manifest. No signature was checked: add --verify."
    if key is None:
        manifest = Manifest.read_whole(folder)
    else:
        # It needs an extra.
        from tutelage.signing import VerifyKey

        signer = VerifyKey.load(key)
        manifest = check_signature(folder, signer.name, signer.has_signed)
        trust = (
            f"{folder} is the release that {signer.name} signed. Compare the fingerprint of the key with the signer:\n"
            f"{signer.fingerprint}\nThe signature covers {', '.join(manifest.sha256)}."
        )
    history = ledger and history_of(ledger)
    card = _proved_as_shown(folder, history)
    if history is not None:
        manifest.require_named(history.manifests, folder, str(ledger))
    states_epsilon = require_evidence(folder, manifest, onnx)
    refuse_others(manifest, folder)
    say(trust)
    if onnx is not None:
        say(f"{onnx} states this release.")
    if STUDENT_FILE in manifest.sha256 and not states_epsilon:
        say(f"{STUDENT_FILE} states no ε, because an earlier version wrote it.")
    if history is None:
        say(
            f"The ledger was not checked: add --ledger. The head on the card is\n{card.budget.head}"
        )
        return VerifiedRelease(card, manifest.sha256["card.json"])
    outdated = _print_later_releases(card, history, folder, str(ledger))
    return VerifiedRelease(card, manifest.sha256["card.json"], outdated)


def _print_later_releases(card: PrivacyCard, history: History, folder: Path, ledger: str) -> str:
    """Print what the ledger has released since a card was made; return why that ends the ε of the card, if it does."""
    then = history.until_head(card.budget.head, str(folder / "card.json"))
    since = len(history.charges) - len(then.charges)
    say(f"{ledger} is intact, contains the head on the card, and names this release.")
    if not since:
        return ""
    outdated = ""
    covered = "covers them"
    if not (card.covers_ledger and then.limit == history.limit):
        covered = outdated = "does not cover them: quote the budget of the ledger"
    if history.state.simulated and not card.epsilon.simulated:
        covered = outdated = "no longer holds: noise was simulated in one of them"
    say(f"Releases or tests since the card was made: {since:,}. The ε of the card {covered}.")
    return outdated


def require_evidence(folder: Path, manifest: Manifest, onnx: Path | None = None) -> bool:
    """Refuse a student's file that is of another card; return whether the one in the folder states an ε."""
    file = folder / "card.json"
    card = read_card(file)
    known = evidence_of(card, manifest.sha256[file.name])
    stated = {}
    problems = list[str]()
    if STUDENT_FILE in manifest.sha256:
        student = str(folder / STUDENT_FILE)
        stated = evidence_in(manifest.content(folder, STUDENT_FILE), student)
        if stated:
            problems += disagreements(student, stated, known)
        elif card.release.versions.get("tutelage") == version("tutelage"):
            problems.append(
                f"{student} states no ε, although this version of tutelage made the card. It is not the student of "
                "this card."
            )
    if onnx is not None:
        # It needs an extra.
        from tutelage.students.export import metadata_of

        of_release = known | {MANIFEST_HASH: manifest.hash}
        problems += disagreements(str(onnx), metadata_of(onnx), of_release)
    if problems:
        raise InvalidDataError(*problems)
    return bool(stated)


def write_entry(checked: VerifiedRelease, file: Path) -> None:
    """Write an entry for the registry of deployments, over no other file than such an entry."""
    if not _ENTRY_NAME.fullmatch(file.name):
        raise ConfigError(
            "--registry must be a file name of lowercase letters, digits and underscores that ends in .yaml, because "
            f"the registry takes no other. Got {file.name!r}."
        )
    write_new(
        file, entry_of(checked.card, checked.hash), "name another file with --registry", over=_ENTRY
    )
    say(f"Entry: {file}. Fill in the lines that are marked TODO, then propose it to")
    say("https://github.com/opendp/deployments-registry-data.")


def history_of(path: Path) -> History:
    """Return the history of a ledger, after checking every entry and every label."""
    ledger = open_to_read(path)
    verified = ledger.verify()
    return ledger.history().until(verified.entries - 1)


def _proved_as_shown(folder: Path, history: History | None) -> PrivacyCard:
    """Return the card of a folder, after its numbers, objections and renderings were checked."""
    file = folder / "card.json"
    signed = read_card(file)
    prove(signed, str(file), history)
    if signed.release.versions.get("tutelage") != version("tutelage"):
        say(f"Only card.json was proved: tutelage {version('tutelage')} did not write this card.")
        return signed
    for name, page in (("card.md", signed.as_markdown()), ("card.html", signed.as_html())):
        if read_text(folder / name) != page:
            raise InvalidDataError(
                f"{folder / name} does not show what card.json says. Do not use this card."
            )
    again = card_of(
        signed.guarantee,
        signed.release,
        signed.student,
        signed.budget,
        signed.statements,
        signed.findings,
    )
    if set(again.findings) - set(signed.findings):
        raise InvalidDataError(
            f"{file} lacks an objection that follows from its numbers. Do not use this card."
        )
    return signed
