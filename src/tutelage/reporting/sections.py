"""The card section by section, under the components of the differential privacy pyramid of NIST SP 800-226 (2025).

With the fifteen questions of a privacy officer, each answered by what the card holds, by its filer, or not at all.
"""

from tutelage.privacy import PublicEpsilon, round_up
from tutelage.reporting.content import (
    NOT_STATED,
    Answer,
    Answers,
    Block,
    Bullets,
    Facts,
    Page,
    Part,
    Prose,
    Section,
    Statement,
)
from tutelage.reporting.drawings import accuracy_figure, costs_figure, frontier_figure, odds_figure, spending_figure
from tutelage.reporting.meaning import (
    advantage,
    bayes_factor,
    digits_for_bound,
    exception,
    guarantee,
    guessing,
    if_added_or_removed,
    likelihood,
    neighbors,
)
from tutelage.reporting.record import CardRecord
from tutelage.reporting.statements import STATEMENTS

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
_SECURITY = (
    "Votes, checkpoints and ledger are written readable by their owner only. They are not encrypted: the disk that "
    "they lie on has to be."
)
_HIDDEN = (
    "Noise hides small groups first: what few teachers know is outvoted. Accuracy on public rows of a class is the "
    "only group measure here."
)
_EXPOSURE = ("private_data", "public_data", "overlap", "collection", "withdrawal", "legal")  # topics of statements
_ALARM = "NOT PRIVATE. The noise was simulated from a seed; this run protects nobody."
_MOST_LISTED = 40


def pages_of(card: CardRecord) -> Page:
    """Return everything that the card says."""
    simulated = card.epsilon.simulated
    guaranteed = (_parameters(card), _unit(card), _budget(card))
    deployed = (
        Section("Query model", (Prose(_QUERY_MODEL),)),
        Section("Trust model", (Prose(TRUST), _statement(card, "trust"), _statement(card, "leaves_site"))),
        Section("Side channels", (Bullets(SIDE_CHANNELS), _statement(card, "side_channels"))),
        Section("Data security and access control", (Prose(_SECURITY), _statement(card, "access"))),
        Section("Data collection exposure", (Prose(SPENT_STAYS_SPENT), *(_statement(card, it) for it in _EXPOSURE))),
    )
    filed = (
        Section("What is not protected", (Bullets(NOT_PROTECTED),)),
        Section("Questions of the privacy officer", (answers_of(card),)),
        _about(card),
    )
    return Page(
        title="Privacy card",
        subtitle=f"Made {card.created}",
        alarm=_ALARM if simulated else None,
        claim=("not private" if simulated else _claim(card.epsilon), guessing(card.epsilon, whole=card.covers_ledger)),
        highlights=_highlights(card),
        picture=odds_figure(card.epsilon),
        findings=card.findings,
        parts=(
            Part("The differential privacy guarantee", guaranteed),
            Part("The differentially private algorithm", (_algorithms(card), _utility(card), _bias(card))),
            Part("The deployment", deployed),
            Part("For the file", filed),
        ),
    )


def _claim(epsilon: PublicEpsilon) -> str:
    return f"ε = {round_up(epsilon.epsilon)} at δ = {epsilon.delta:g}"


def _highlights(card: CardRecord) -> tuple[tuple[str, str], ...]:
    budget = card.budget
    left = max(0.0, budget["budget"] - round_up(budget["spent"]))
    return (
        ("Unit of privacy", card.epsilon.unit.name),
        ("Kind of ε", "none: simulated noise" if card.epsilon.simulated else "data-independent: may be published"),
        ("Budget left", f"{left:.4g} of {round_up(budget['budget'])}"),
        ("Queries", _queries(card)),
        ("Teachers", _teachers(card)),
        ("Student", "not measured" if card.student_accuracy is None else f"{card.student_accuracy:.2%} right"),
        (
            "Majority class",
            NOT_STATED if card.majority_share is None else f"{card.majority_share:.2%} of the same rows",
        ),
    )


def _parameters(card: CardRecord) -> Section:
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


def _unit(card: CardRecord) -> Section:
    unit = card.epsilon.unit
    facts = Facts((("Unit of privacy", unit.name), ("Neighbouring data", unit.neighboring.sentence)))
    blocks: list[Block] = [facts, Prose(neighbors(card.epsilon))]
    if card.if_added_or_removed is not None and not card.epsilon.simulated:
        blocks.append(Prose(if_added_or_removed(card.if_added_or_removed, card.epsilon)))
    return Section("Unit of privacy", tuple(blocks))


def _budget(card: CardRecord) -> Section:
    budget = card.budget
    whole, spent = round_up(budget["budget"]), f"{round_up(budget['spent']):.4f}"
    line = f"none: simulated noise; {spent} of {whole} is counted as spent"
    if not card.epsilon.simulated:
        line = (
            f"everything released through the ledger is ({whole}, {budget['delta']:g})-differentially private; {spent} "
            "is spent"
        )
    rows = (
        ("Budget of these data", line),
        ("Ledger", f"{budget['entries']:,} entries"),
        ("Head of the ledger", str(budget["head"])),
    )
    blocks: list[Block] = [Facts(rows)]
    if len(card.batches) > 1:
        blocks.append(spending_figure(card.batches, budget["budget"]))
    if card.batches:
        blocks.append(costs_figure(card.batches, budget["budget"]))
    if len(card.frontier) > 1:
        blocks.append(frontier_figure(card.frontier, card.queries))
    return Section("Privacy budget", (*blocks, _statement(card, "other_releases")))


def _algorithms(card: CardRecord) -> Section:
    rows = (
        ("Mechanism", card.mechanism),
        ("Noise", card.noise_source),
        ("Teachers", _teachers(card)),
        ("Queries", _queries(card)),
        ("Queries chosen", card.selection),
    )
    return Section("Algorithms and correctness", (Facts(rows), _statement(card, "evidence")))


def _utility(card: CardRecord) -> Section:
    accuracy = "not measured: no labelled public rows were given"
    if card.student_accuracy is not None:
        accuracy = f"{card.student_accuracy:.2%} on {card.evaluation_rows:,} public rows"
    rows = [
        ("Classes", _listed(card.classes)),
        ("Student", card.student),
        ("Student takes", _listed(card.features)),
        ("Feature map", card.feature_map),
        ("Student accuracy", accuracy),
    ]
    if card.majority_share is not None:
        rows.append(("Always naming the majority class", f"{card.majority_share:.2%} on the same rows"))
    return Section("Utility", (Facts(tuple(rows)),))


def _bias(card: CardRecord) -> Section:
    blocks: list[Block] = [Prose(_HIDDEN)]
    if any(entry.rows for entry in card.accuracy_by_class):
        blocks.append(accuracy_figure(card.accuracy_by_class))
    return Section("Bias", (*blocks, _statement(card, "fairness")))


def _about(card: CardRecord) -> Section:
    rows = (
        ("Made", card.created),
        ("With", ", ".join(f"{name} {version}" for name, version in card.versions.items()) or NOT_STATED),
    )
    text = (
        "A card is a statement and no proof. To check it, verify the ledger of the private data and compare its head: "
        "tutelage ledger verify LEDGER --head " + str(card.budget["head"])
    )
    return Section("About this card", (Facts(rows), Prose(text)))


def _statement(card: CardRecord, topic: str) -> Statement:
    return Statement(STATEMENTS[topic], card.statements.get(topic))


def _teachers(card: CardRecord) -> str:
    return NOT_STATED if card.teachers is None else f"{card.teachers:,}"


def _queries(card: CardRecord) -> str:
    asked = f"{card.queries:,} asked"
    return asked if card.answered is None else f"{asked}, {card.answered:,} answered"


def _listed(names: tuple[str, ...]) -> str:
    """Return the names, of very many only the first and their number; the JSON card has them all."""
    if not names:
        return NOT_STATED
    shown = ", ".join(names[:_MOST_LISTED])
    return shown if len(names) <= _MOST_LISTED else f"{shown}, … ({len(names):,} in all)"


SPENT_STAYS_SPENT = "What was released stays released, and its budget spent, whoever withdraws later."
TRUST = (
    "Central: whoever runs the software holds private rows, teachers and votes, and is trusted with them. Whoever "
    "receives labels, student or card may know anything else, and is not trusted."
)
SIDE_CHANNELS = (
    "Votes and noise are whole numbers, so that no floating-point rounding of a released value gives votes away.",
    "Errors, logs and progress bars show no votes; files of arrays are read without running what they hold.",
    "Timing is not hidden: give outsiders the released files, not the machine that makes them.",
)
_HEADINGS = "The headings of this card are the components of the differential privacy pyramid of NIST SP 800-226."
_EXIT = "The software is open source and calls no network to release; its versions are on this card."


def answers_of(card: CardRecord) -> Answers:
    """Return the fifteen questions with their answers."""
    unit, budget = card.epsilon.unit, card.budget
    versions = ", ".join(f"{name} {version}" for name, version in card.versions.items())
    made = f" Computed by {versions}." if versions else ""
    parameters = f"{guarantee(card.epsilon).capitalize()}; proved by: {card.epsilon.method}.{made}"
    leaves = (
        f"Released labels of at most {card.queries:,} public rows, what a student learned from them, this card, and "
        "the ledger's export. Private rows, teachers and votes do not leave."
    )
    ledger = (
        f"A hash-chained ledger of {budget['entries']:,} entries: {round_up(budget['spent'])} of ε = "
        f"{round_up(budget['budget'])} is spent. It is charged before noise is drawn, and its head is on this card."
    )
    bound = "is tied to one data set" if budget.get("bound") else "is not tied to a data set"
    others = f"The ledger {bound} and counts every release made through it, whatever the project; it sees no others."
    questions = (  # with the topic of the filer's statement, and what the card knows
        (
            "What is the unit of privacy: record, encounter, patient, or site?",
            "",
            f"{unit.name}; neighbouring data differ so: {unit.neighboring.sentence}.",
        ),
        ("What exactly leaves each site?", "leaves_site", leaves),
        ("Who is trusted with what?", "trust", TRUST),
        ("Which ε, δ, neighbours and accountant; and why this ε?", "why_epsilon", parameters),
        ("Is the reported ε itself safe to publish?", "", publishable(card)),
        ("Who spent which budget, and can that be tampered with?", "", ledger),
        ("Which independent evidence is there?", "evidence", None),
        (
            "What about side channels?",
            "side_channels",
            f"Noise: {card.noise_source}. {' '.join(SIDE_CHANNELS)}",
        ),
        ("What if a site drops out, is dishonest, or consent is withdrawn?", "withdrawal", SPENT_STAYS_SPENT),
        ("Do public and private data overlap, and where do the public rows come from?", "overlap", None),
        ("Who is served worse?", "fairness", _fairness(card)),
        ("What else is released about the same people?", "other_releases", others),
        ("How does this map to NIST SP 800-226?", "", _HEADINGS),
        ("What is the legal assessment?", "legal", None),
        ("Can it be rebuilt, and does it call the network?", "exit", _EXIT),
    )
    return Answers(tuple(Answer(question, known, card.statements.get(topic)) for question, topic, known in questions))


def publishable(card: CardRecord) -> str:
    """Return whether the printed ε may itself be published, and why."""
    if card.epsilon.simulated:
        return "There is no ε to publish: the noise was simulated."
    text = "Yes. It is computed from public settings alone, for all votes there could be."
    if card.sanitised is not None:
        text += f" The second one looked at the votes; what made it publishable: {card.sanitised.method}."
    return text


def _fairness(card: CardRecord) -> str | None:
    shares = [entry.right / entry.rows for entry in card.accuracy_by_class if entry.rows]
    if not shares:
        return None
    return f"By class, on public rows: {min(shares):.1%} to {max(shares):.1%} right. Other groups were not measured."
