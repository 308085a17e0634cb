"""The fifteen questions of a privacy officer, each answered by what the card holds, by its filer, or not at all."""

from tutelage.privacy import round_up
from tutelage.reporting.content import Answer, Answers
from tutelage.reporting.meaning import guarantee
from tutelage.reporting.record import CardRecord

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
