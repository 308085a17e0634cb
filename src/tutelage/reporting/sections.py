"""The card section by section, under the components of the differential privacy pyramid of NIST SP 800-226 (2025)."""

from typing import TYPE_CHECKING, Any

from tutelage.privacy import PublicEpsilon, bayes_factor, digits_for_bound, round_up
from tutelage.reporting.content import (
    NOT_STATED,
    Answers,
    Block,
    Bullets,
    Facts,
    Findings,
    Page,
    Part,
    Prose,
    Section,
    Statement,
)
from tutelage.reporting.drawings import accuracy_figure, costs_figure, frontier_figure, odds_figure, spending_figure
from tutelage.reporting.meaning import advantage, exception, guarantee, guessing, likelihood
from tutelage.reporting.questions import SIDE_CHANNELS, SPENT_STAYS_SPENT, TRUST, answers_of, publishable
from tutelage.reporting.statements import STATEMENTS

if TYPE_CHECKING:
    from tutelage.reporting.card import PrivacyCard

NOT_PROTECTED = (
    "The public rows themselves: they were shown to the teachers and may be kept by the student.",
    "Facts about the whole population that the student learns; they hold with or without any one unit.",
    "A person whose rows are spread over several units: the loss adds up over the units.",
    "Releases from the same private data outside this ledger: their epsilons add to its budget.",
    "Votes, teachers and checkpoints, which stay with the data's owner and must not be published.",
)
_QUERY_MODEL = (
    "Interactive within a budget: queries may be chosen in view of earlier answers, each is charged before its noise "
    "is drawn, and the ledger refuses what does not fit. A repeated query gets its first answer again, at no cost."
)
_ALARM = "NOT PRIVATE. The noise was simulated from a seed; this run protects nobody."
_MOST_LISTED = 40


def pages_of(card: "PrivacyCard") -> Page:
    """Return everything that the card says."""
    return Page(
        title="Privacy card",
        subtitle=f"Made {card.created}",
        alarm=_ALARM if card.epsilon.simulated else None,
        claim=(
            "not private" if card.epsilon.simulated else _claim(card.epsilon),
            guessing(card.epsilon, whole=card.covers_ledger),
        ),
        highlights=_highlights(card),
        picture=odds_figure(card.epsilon),
        findings=Findings(card.findings),
        parts=(
            Part("The differential privacy guarantee", (_parameters(card), _unit(card), _budget(card))),
            Part("The differentially private algorithm", (_algorithms(card), _utility(card), _bias(card))),
            Part(
                "The deployment",
                (
                    Section("Query model", (Prose(_QUERY_MODEL),)),
                    _trust_model(card),
                    _side_channels(card),
                    _security(card),
                    _exposure(card),
                ),
            ),
            Part(
                "For the file",
                (
                    Section("What is not protected", (Bullets(NOT_PROTECTED),)),
                    Section("Questions of the privacy officer", (Answers(answers_of(card)),)),
                    _about(card),
                ),
            ),
        ),
    )


def _kind_of(epsilon: PublicEpsilon) -> str:
    """Return why the ε of a card may be published."""
    return "none: simulated noise" if epsilon.simulated else "data-independent: may be published"


def _claim(epsilon: PublicEpsilon) -> str:
    return f"ε = {round_up(epsilon.epsilon)} at δ = {epsilon.delta:g}"


def _highlights(card: "PrivacyCard") -> tuple[tuple[str, str], ...]:
    budget = card.budget
    left = max(0.0, budget["budget"] - round_up(budget["spent"]))
    return (
        ("Unit of privacy", card.epsilon.unit.name),
        ("Kind of ε", _kind_of(card.epsilon)),
        ("Budget left", f"{left:.4g} of {round_up(budget['budget'])}"),
        ("Queries", _queries(card)),
        ("Teachers", NOT_STATED if card.teachers is None else f"{card.teachers:,}"),
        ("Student", "not measured" if card.student_accuracy is None else f"{card.student_accuracy:.2%} right"),
        (
            "Majority class",
            NOT_STATED if card.majority_share is None else f"{card.majority_share:.2%} of the same rows",
        ),
    )


def _parameters(card: "PrivacyCard") -> Section:
    epsilon = card.epsilon
    rows = [("Guarantee", guarantee(epsilon)), ("Proved by", epsilon.method)]
    blocks: list[Block] = [Prose(likelihood(epsilon, whole=card.covers_ledger))]
    if not epsilon.simulated:
        share = advantage(epsilon.epsilon, epsilon.delta)
        most = min(1.0, round_up(share, digits_for_bound(share, 3)))
        rows += [
            ("Bayes factor e^ε", f"at most {bayes_factor(epsilon.epsilon)}, but for δ"),
            ("Membership advantage", f"at most {most}, where 0 is none and 1 is certainty"),
        ]
        blocks += [Prose(exception(epsilon.delta))]
    rows.append(("May ε be published?", publishable(card)))
    if card.alone is not None:
        rows.append(("ε of this release by itself", f"{_claim(card.alone)}; proved by: {card.alone.method}"))
    if card.sanitised is not None:
        rows += [
            ("Second ε, sanitised", f"{_claim(card.sanitised)}, of what was released until then"),
            ("What made it publishable", card.sanitised.method),
        ]
    return Section("Privacy parameters", (Facts(tuple(rows)), *blocks, _statement(card, "why_epsilon")))


def _budget(card: "PrivacyCard") -> Section:
    budget = card.budget
    blocks: list[Block] = [
        Facts(
            (
                ("Budget of these data", _budget_line(budget, simulated=card.epsilon.simulated)),
                ("Ledger", f"{budget['entries']:,} entries"),
                ("Head of the ledger", str(budget["head"])),
            )
        )
    ]
    if len(card.batches) > 1:
        blocks.append(spending_figure(card.batches, budget["budget"]))
    if card.batches:
        blocks.append(costs_figure(card.batches, budget["budget"]))
    if len(card.frontier) > 1:
        blocks.append(frontier_figure(card.frontier, card.queries))
    return Section("Privacy budget", (*blocks, _statement(card, "other_releases")))


def _unit(card: "PrivacyCard") -> Section:
    unit = card.epsilon.unit
    rows = (("Unit of privacy", unit.name), ("Neighbouring data", unit.neighboring.sentence))
    return Section("Unit of privacy", (Facts(rows),))


def _algorithms(card: "PrivacyCard") -> Section:
    rows = (
        ("Mechanism", card.mechanism),
        ("Noise", card.noise_source),
        ("Teachers", NOT_STATED if card.teachers is None else f"{card.teachers:,}"),
        ("Queries", _queries(card)),
        ("Queries chosen", card.selection),
    )
    return Section("Algorithms and correctness", (Facts(rows), _statement(card, "evidence")))


def _utility(card: "PrivacyCard") -> Section:
    accuracy = "not measured: no labelled public rows were given"
    if card.student_accuracy is not None:
        accuracy = f"{card.student_accuracy:.2%} on {card.evaluation_rows:,} public rows"
    rows = (
        ("Classes", _listed(card.classes)),
        ("Student", card.student),
        ("Student takes", _listed(card.features)),
        ("Feature map", card.feature_map),
        ("Student accuracy", accuracy),
        *_majority(card),
    )
    return Section("Utility", (Facts(rows),))


def _majority(card: "PrivacyCard") -> tuple[tuple[str, str], ...]:
    if card.majority_share is None:
        return ()
    return (("Always naming the majority class", f"{card.majority_share:.2%} on the same rows"),)


def _bias(card: "PrivacyCard") -> Section:
    blocks: list[Block] = [
        Prose(
            "Noise hides small groups first: what few teachers know is outvoted. Accuracy on public rows of a class is "
            "the only group measure here."
        )
    ]
    if any(entry.rows for entry in card.accuracy_by_class):
        blocks.append(accuracy_figure(card.accuracy_by_class))
    return Section("Bias", (*blocks, _statement(card, "fairness")))


def _trust_model(card: "PrivacyCard") -> Section:
    return Section("Trust model", (Prose(TRUST), _statement(card, "trust"), _statement(card, "leaves_site")))


def _side_channels(card: "PrivacyCard") -> Section:
    return Section("Side channels", (Bullets(SIDE_CHANNELS), _statement(card, "side_channels")))


def _security(card: "PrivacyCard") -> Section:
    text = (
        "Votes, checkpoints and ledger are written readable by their owner only. They are not encrypted: the disk that "
        "they lie on has to be."
    )
    return Section("Data security and access control", (Prose(text), _statement(card, "access")))


def _exposure(card: "PrivacyCard") -> Section:
    topics = ("private_data", "public_data", "overlap", "collection", "withdrawal", "legal")
    blocks = (Prose(SPENT_STAYS_SPENT), *(_statement(card, topic) for topic in topics))
    return Section("Data collection exposure", blocks)


def _about(card: "PrivacyCard") -> Section:
    rows = (
        ("Made", card.created),
        ("With", ", ".join(f"{name} {version}" for name, version in card.versions.items()) or NOT_STATED),
    )
    text = (
        "A card is a statement and no proof. To check it, verify the ledger of the private data and compare its head: "
        "tutelage ledger verify LEDGER --head " + str(card.budget["head"])
    )
    return Section("About this card", (Facts(rows), Prose(text)))


def _statement(card: "PrivacyCard", topic: str) -> Statement:
    return Statement(STATEMENTS[topic], card.statements.get(topic))


def _queries(card: "PrivacyCard") -> str:
    asked = f"{card.queries:,} asked"
    return asked if card.answered is None else f"{asked}, {card.answered:,} answered"


def _listed(names: tuple[str, ...]) -> str:
    """Return the names, of very many only the first and their number; the JSON card has them all."""
    if not names:
        return NOT_STATED
    shown = ", ".join(names[:_MOST_LISTED])
    return shown if len(names) <= _MOST_LISTED else f"{shown}, … ({len(names):,} in all)"


def _budget_line(budget: dict[str, Any], *, simulated: bool) -> str:
    if simulated:
        spent = f"{round_up(budget['spent']):.4f} of {round_up(budget['budget'])}"
        return f"none: simulated noise; {spent} is counted as spent"
    return (
        f"everything released through the ledger is ({round_up(budget['budget'])}, {budget['delta']:g})-differentially "
        f"private; {round_up(budget['spent']):.4f} is spent"
    )
