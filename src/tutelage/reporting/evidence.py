"""Evidence in the file of a student: of which release it is, and with which ε, for programs that see only this file.

The hashes detect mix-ups. Only a signature detects a person who rewrites card, manifest and student together.
"""

import json
from collections.abc import Mapping

from tutelage._internal.records import Entries, file_entries
from tutelage.reporting.card import PrivacyCard

MANIFEST_HASH = "manifest_sha256"  # of the release that an ONNX file was exported from
_KIND = "release evidence"
_LONGEST = 60  # characters of a value in a sentence
_OF_HASHES = {
    "card_sha256": "is the student of another card.json, or of this one before it was changed",
    MANIFEST_HASH: "was exported from another release, or from this one before it was changed",
}


def evidence_of(card: PrivacyCard, card_hash: str) -> Entries:
    """Return what the student's file states of its release; `card_hash` is that of ``card.json``."""
    epsilon = card.epsilon
    return file_entries(
        _KIND,
        {
            "title": card.statements.get("title", ""),
            "day": card.release.created,
            "epsilon": epsilon.epsilon,
            "delta": epsilon.delta,
            "unit": epsilon.unit.name,
            "neighboring": epsilon.unit.neighboring,
            "simulated": epsilon.simulated,
            "ledger_head": card.budget.head,
            "card_sha256": card_hash,
        },
    )


def as_text(value: object) -> str:
    """Return a value of evidence as text: as it is, or as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def disagreements(file: str, stated: Mapping[str, object], known: Entries) -> list[str]:
    """Return a sentence for each entry in which the evidence in a file is not the one that is known."""
    if as_text(stated.get("format", "")) != as_text(known["format"]):
        return [
            f"{file} has evidence of another format. Check it with the version of tutelage that wrote it."
        ]
    sentences = [
        f"{file} states `{key}`, which is not part of evidence." for key in stated.keys() - known
    ]
    for key, value in known.items():
        if key not in stated:
            sentences.append(f"{file} does not state `{key}`.")
        elif as_text(stated[key]) != as_text(value):
            states, has = (as_text(one)[:_LONGEST] for one in (stated[key], value))
            fault = f"states `{key}` = {states!r}, but card.json has {has!r}"
            sentences.append(f"{file} {_OF_HASHES.get(key, fault)}.")
    return sorted(sentences)
