"""Where the card answers NIST SP 800-226, ISO/IEC 27559 and the three questions of Opinion 05/2014.

The column *Covered?* says whether the card answers a point, not whether the answer is good enough.
"""

from tutelage.reporting.content import Prose, Section, Table
from tutelage.reporting.lints import verdict_of
from tutelage.reporting.meaning import cases
from tutelage.reporting.record import CardRecord

_NO_ADVICE = (
    "This is not legal advice. For NIST and ISO, the last column says whether this card answers a point, not whether "
    "the answer is good enough. Each missing statement is named by its topic."
)


def frameworks(card: CardRecord) -> tuple[Section, ...]:
    """Return the three mappings."""
    return (
        Section("NIST SP 800-226", (Prose(_NO_ADVICE), _nist(card))),
        Section("ISO/IEC 27559:2022", (_iso(card),)),
        Section("Opinion 05/2014 of the Article 29 Working Party", (_opinion(card), Prose(_OPINION))),
    )


def _nist(card: CardRecord) -> Table:
    measured, by_class = card.student_accuracy is not None, any(entry.rows for entry in card.accuracy_by_class)
    rows = (
        ("Privacy parameters", "ε and δ, proved from public settings", _graded(card, True, "why_epsilon")),
        ("Unit of privacy", "the unit and its neighboring relation", _graded(card, True)),
        ("Algorithms and correctness", "mechanism, noise and proof", _graded(card, True, "evidence")),
        (
            "Utility",
            "accuracy, and what it is compared with",
            _graded(card, measured, "without_privacy"),
        ),
        ("Bias", "accuracy by class", _graded(card, by_class, "fairness")),
        ("Query model", "interactive within a budget", _graded(card, True)),
        ("Trust model", card.model, _graded(card, True, "trust", "leaves_site")),
        ("Side channels", "what the software does", _graded(card, True, "side_channels")),
        ("Data security and access control", "file permissions", _graded(card, True, "access")),
        (
            "Data collection exposure",
            "only what the owner states",
            _graded(card, "collection" in card.statements, "private_data", "collection"),
        ),
    )
    return Table(("Component", "On this card", "Covered?"), rows)


def _iso(card: CardRecord) -> Table:
    governed = ("controller", "signed_by", "review_date", "withdrawal")
    rows = (
        (
            "6 Context assessment",
            "trust model and intended use",
            _graded(card, True, "purpose", "intended_use", "trust", "access"),
        ),
        (
            "7 Data assessment",
            "privacy unit; an attacker who knows every other record",
            _graded(card, True, "private_data", "people", "public_data", "overlap"),
        ),
        (
            "8 Identifiability assessment and mitigation",
            "bound on right guesses; noise as mitigation",
            _graded(card, not card.epsilon.simulated, "evidence"),
        ),
        ("9 Governance", "ledger, signature and review", _graded(card, True, *governed)),
    )
    return Table(("Clause", "On this card", "Covered?"), rows)


def _opinion(card: CardRecord) -> Table:
    word, unit = verdict_of(card.epsilon, card.findings).word, card.epsilon.unit.name
    if card.epsilon.simulated:
        bound = "The noise was simulated, so nothing is bounded."
    else:
        bound = f"Guesses between two equally likely versions of one unit ({unit}) are right in {cases(card.epsilon)}."
    rows = (
        (
            "Can a person be singled out?",
            f"The release contains no private record. {bound}",
            f"{word} protection",
        ),
        (
            "Can records of a person be linked?",
            "The release contains no identifier of a private person. The bound holds for any combined "
            "data, except other releases from the same private data.",
            f"{word} protection, within this ledger",
        ),
        (
            "Can facts about a person be inferred?",
            "The bound limits what a person's own data add. Facts about the population can be inferred, and apply to "
            "people who are not in the data too.",
            f"{word} protection of a person's own data; no protection of facts about the population",
        ),
    )
    return Table(("Question", "Answer", "Verdict"), rows)


_OPINION = (
    "The words strong, moderate and weak follow the rule on the first page, for one privacy unit. A person with "
    "several units is protected less. These answers do not decide whether the release is personal data."
)


def _graded(card: CardRecord, known: bool, *topics: str) -> str:
    """Return whether the software and the statements answer a point, and which statements are missing."""
    missing = [topic for topic in topics if topic not in card.statements]
    if known and not missing:
        return "answered"
    word = "partly answered" if known or len(missing) < len(topics) else "not answered"
    return f"{word}; missing: {', '.join(missing)}" if missing else word
