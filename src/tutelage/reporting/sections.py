"""The card: a first page to read aloud, and an annex under the components of NIST SP 800-226 (2025)."""

import math

from tutelage.privacy import NeighboringRelation, PublicEpsilon, round_up
from tutelage.reporting import meaning
from tutelage.reporting.drawings import costs_figure, counted
from tutelage.reporting.evidence import ClassAccuracy
from tutelage.reporting.lints import verdict_of
from tutelage.reporting.pages import NOT_STATED, Block, Bullets, Code, Facts, Page, Part, Prose, Section, Statement
from tutelage.reporting.record import STATEMENTS, CardRecord

NOT_PROTECTED = (
    "The public rows: the student may memorize them.",
    "Facts about the whole population that the student learns. They are true with or without any one person's data.",
    "A person with several units: for two units, ε at the same δ is more than twice as large.",
    "Releases from the same private data outside this ledger: add their ε and their δ to those of this budget.",
    "Private files, such as ballots, votes, teachers or checkpoints. They stay with the data set owner and must not be "
    "published.",
)
_QUERY_MODEL = (
    "Interactive within a budget. A query may depend on earlier labels. Budget is spent before noise is drawn. A query "
    "that would exceed it is refused. A repeated query gets its first label again and spends nothing."
)
_SUM_MODEL = (
    "Interactive within a budget. Budget is spent before noise is drawn. A release that would exceed it is refused. A "
    "repeated run returns the same sums and spends nothing."
)
_SECURITY = (
    "Only the user account that owns the files can read the ledger and the private files. They are not encrypted: the "
    "disk must be."
)
_HIDDEN = "Noise lowers accuracy for small groups first. Of groups, this card measures only classes, on public rows."
_EXPOSURE = ("public_data", "overlap", "collection", "withdrawal", "legal")  # topics of statements
_VERIFY = "tutelage card FOLDER --verify NAME.public.json --ledger LEDGER"
_STATE = 'tutelage card FOLDER --state TOPIC="…"'
_ALARM = "NOT PRIVATE. The noise was simulated from a seed; this run protects no one."
_HEAD = "Checksum of the newest ledger entry (head):"
_MOST_LISTED, _MOST_CLASSES = 40, 24
_Z = 1.96  # of a 95 % interval
SPENT_STAYS_SPENT = "A release cannot be withdrawn. Its budget stays spent, even if a person or site withdraws later."
TRUST = {
    "central": "Central: the data set owner runs the software and is trusted with private rows and with all that is "
    "computed from them before noise is added. It reads private files cell by cell, or has declared the types of their "
    "columns: otherwise one person's cell could change how all cells are read. Recipients of the release are not "
    "trusted: they may know all other data.",
    "federated": "Federated: every hospital runs the software, and keeps its rows and all that is computed from them "
    "before noise is added. ε holds if at "
    "least as many hospitals as the terms require are honest and keep their noise secret. The three computing parties "
    "must follow the protocol, and no two of them may combine their data. Other hospitals, and recipients of the "
    "release, are not trusted: they may know all other data.",
    "local": "Local: each hospital randomizes its own votes, and needs to trust no other member. Other members, and "
    "recipients of the release, are not trusted: they may know all other data.",
}
_STAYS = {
    "central": "Private rows, and all that is computed from them before noise is added, do not leave.",
    "federated": "Sealed shares of noisy ballots or votes leave each hospital. Private rows, and all that is computed "
    "from them before noise is added, do not.",
    "local": "Randomized votes leave the hospital. Private rows and votes without noise do not.",
}
SIDE_CHANNELS = (
    "Votes, sums and noise are whole numbers, so rounding errors reveal nothing.",
    "Errors, logs and progress bars show no votes. Opening a data file runs no code from it.",
    "Timing is not hidden: give outsiders the released files, not access to the machine.",
)
_NIST = "The headings of this annex, from the guarantee to the deployment, are components of its pyramid."
_EXIT = "The software is open source, and its versions are on this card."


def pages_of(card: CardRecord) -> Page:
    """Return everything that the card says."""
    simulated = card.epsilon.simulated
    guaranteed = (_parameters(card), _unit(card), _budget(card))
    deployed = (
        Section("Query model", (Prose(_SUM_MODEL if card.releases_sums else _QUERY_MODEL),)),
        Section("Trust model", (Prose(TRUST[card.model]), *_stated(card, "trust", "leaves_site"))),
        Section("Side channels", (Bullets(SIDE_CHANNELS), *_stated(card, "side_channels"))),
        Section("Data security and access control", (Prose(_SECURITY), *_stated(card, "access"))),
        Section("Data collection exposure", (Prose(SPENT_STAYS_SPENT), *_stated(card, *_EXPOSURE))),
    )
    filed = (
        Section("Not protected", (Bullets(NOT_PROTECTED),)),
        Section("Questions of the privacy officer", (answers_of(card),)),
        _about(card),
    )
    title, made = card.statements.get("title"), f"Made {card.created[:10]}"
    return Page(
        title="Privacy card",
        subtitle=made if title is None else f"{title} · {made}",
        alarm=_ALARM if simulated else None,
        sentence=meaning.guessing(card.epsilon, whole=card.covers_ledger),
        verdict=verdict_of(card.epsilon, card.findings),
        facts=_first_page(card),
        findings=card.findings,
        parts=(
            Part("The differential privacy guarantee", guaranteed),
            Part("The differentially private algorithm", (_algorithms(card), _utility(card), _bias(card))),
            Part("The deployment", deployed),
            Part("Other information", filed),
        ),
    )


def claim_of(epsilon: PublicEpsilon) -> str:
    """Return an ε with its δ, rounded upward."""
    return f"ε = {round_up(epsilon.epsilon)} at δ = {epsilon.delta:.10g}"


def _first_page(card: CardRecord) -> Facts:
    epsilon, said = card.epsilon, card.statements
    scope = "everything ever released from this budget" if card.covers_ledger else "this release"
    small = f" ({meaning.one_in(epsilon.delta)})" if epsilon.delta else ""
    held = "none: simulated noise" if epsilon.simulated else f"{claim_of(epsilon)}{small}, for {scope}"
    majority = None if card.majority_share is None else f"{card.majority_share:.2%} of the same rows"
    missing = [name for topic, name in _LINES.items() if topic not in said]
    accuracy = "not measured: no labeled public rows were given"
    if card.student_accuracy is not None:
        accuracy = f"{card.student_accuracy:.2%} on {card.evaluation_rows:,} public rows"
    objections = "the settings were not checked" if card.findings is None else "none found: see the annex"
    if card.findings:
        named = (f"{one.code.replace('-', ' ')} ({one.severity})" for one in card.findings)
        objections = f"{', '.join(named)}: see the annex"

    def stated(*topics: str) -> list[tuple[str, str]]:
        return [(_LINES[topic], said[topic]) for topic in topics if topic in said]

    return Facts(
        (
            *stated("private_data", "controller", "purpose", "people"),
            ("Privacy unit", f"{epsilon.unit.name}: {epsilon.unit.neighboring.sentence}"),
            ("Privacy guarantee", held),
            ("Budget", _spending(card)),
            *stated("intended_use", "excluded_use"),
            ("Accuracy of the model (student)", accuracy),
            ("Accuracy of always guessing the most frequent class", majority or "not measured"),
            *stated("without_privacy"),
            ("Objections", objections),
            *stated("signed_by", "review_date"),
            *([("Not stated by the data set owner", "; ".join(missing))] if missing else []),
        )
    )


_LINES = {
    "private_data": "Data set",
    "controller": "Controller",
    "purpose": "Purpose",
    "people": "People",
    "intended_use": "Intended use",
    "excluded_use": "Excluded use",
    "without_privacy": "Model without privacy",
    "signed_by": "Signed by",
    "review_date": "Next review",
}


def _spending(card: CardRecord) -> str:
    """Return the budget, how much of it is used, and what it allows an attacker once all of it is."""
    spending = card.spending
    used = f"ε = {spending.budget} at δ = {card.budget['delta']:.10g} for all releases; {spending}"
    if card.epsilon.simulated or card.covers_ledger or not spending.left:
        return used
    whole = PublicEpsilon(card.budget["budget"], card.budget["delta"], card.epsilon.unit, "budget")
    return f"{used}. If all of it is spent, the attacker guesses right in {meaning.cases(whole)}"


def _parameters(card: CardRecord) -> Section:
    epsilon = card.epsilon
    rows = [("Guarantee", meaning.guarantee(epsilon)), ("Proved by", epsilon.method)]
    blocks: list[Block] = [Prose(meaning.likelihood(epsilon, card.outcome, whole=card.covers_ledger))]
    if not epsilon.simulated:
        share = meaning.advantage(epsilon.epsilon, epsilon.delta)
        most = min(1.0, round_up(share, meaning.digits_for_bound(share, 3)))
        rows += [
            ("Bayes factor e^ε", f"the odds change at most {meaning.bayes_factor(epsilon.epsilon)}-fold, apart from δ"),
            ("Membership advantage", f"at most {most}; 0 is a coin toss, 1 is certainty"),
        ]
        blocks.append(Prose(meaning.exception(epsilon.delta)))
    rows.append(("May ε be published?", publishable(card)))
    if card.alone is not None:
        rows.append(("ε of this release by itself", f"{claim_of(card.alone)}; proved by: {card.alone.method}"))
    if card.sanitised is not None:
        rows += [
            ("Second ε, tested", f"{claim_of(card.sanitised)}, of everything released until then"),
            ("Why it may be published", card.sanitised.method),
        ]
    return Section("Privacy parameters", (Facts(tuple(rows)), *blocks, *_stated(card, "why_epsilon")))


def _unit(card: CardRecord) -> Section:
    blocks: list[Block] = [Prose(meaning.neighbors(card.epsilon))]
    if card.if_added_or_removed is not None and not card.epsilon.simulated:
        blocks.append(Prose(meaning.if_added_or_removed(card.if_added_or_removed, card.epsilon)))
    return Section("Unit of privacy", tuple(blocks))


def _budget(card: CardRecord) -> Section:
    budget, spending = card.budget, card.spending
    line = f"none: simulated noise; {spending.spent} of {spending.budget} is counted as spent"
    if not card.epsilon.simulated:
        line = (
            f"everything released through the ledger is ({spending.budget}, {budget['delta']:.10g})-differentially "
            f"private; {spending}"
        )
    rows = [("Budget of the private data", line), ("Ledger", f"{budget['entries']:,} entries")]
    if len(card.frontier) > 1:
        costs = (f"{point.queries:,}: ε = {round_up(point.epsilon.epsilon)}" for point in card.frontier)
        rows.append(("Cost of this release by itself, for other numbers of queries", "; ".join(costs)))
    blocks: list[Block] = [Facts(tuple(rows)), Code(_HEAD, str(budget["head"]))]
    if card.batches:
        blocks.append(costs_figure(card.batches, spending))
    return Section("Privacy budget", (*blocks, *_stated(card, "other_releases")))


def _algorithms(card: CardRecord) -> Section:
    cast_by = "Ballots" if card.releases_sums else "Teachers"
    number = NOT_STATED if card.teachers is None else f"{card.teachers:,}"
    if card.releases_sums and card.epsilon.unit.neighboring is not NeighboringRelation.CHANGE_ONE_ROW:
        number = f"about {number} (noisy)"
    rows = (
        ("Mechanism", card.mechanism),
        ("Noise", card.noise_source),
        (cast_by, number),
        *([("Released", counted(card.sums, "noisy sum", "noisy sums"))] if card.releases_sums else []),
        *_queries(card),
    )
    return Section("Algorithms and correctness", (Facts(rows), *_stated(card, "evidence")))


def _utility(card: CardRecord) -> Section:
    rows = (
        ("Classes", _listed(card.classes)),
        ("Student", card.student),
        ("Input of the student", _listed(card.features)),
        ("Feature map", card.feature_map),
    )
    return Section("Utility", (Facts(rows),))


def _bias(card: CardRecord) -> Section:
    """Return the student's accuracy by class, with 95 % intervals; of very many classes the worst."""
    counted = sorted((entry for entry in card.accuracy_by_class if entry.rows), key=lambda it: it.right / it.rows)
    rows = tuple((entry.name, _right(entry)) for entry in counted[:_MOST_CLASSES])
    blocks: list[Block] = [Prose(_HIDDEN)]
    if rows:
        heading = (
            f"Accuracy by class, on public rows, the worst first ({len(rows)} of {len(card.accuracy_by_class):,}):"
        )
        blocks += [Prose(heading), Facts(rows)]
    return Section("Bias", (*blocks, *_stated(card, "fairness")))


def _right(entry: ClassAccuracy) -> str:
    """Return the share of a class that is right, with Wilson's score interval."""
    n, share = entry.rows, entry.right / entry.rows
    middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2)) / (1 + _Z**2 / n)
    return f"{share:.1%} of {n:,} rows ({max(0.0, middle - half):.1%} to {min(1.0, middle + half):.1%})"


def _about(card: CardRecord) -> Section:
    rows = (
        ("Made", card.created),
        ("With", ", ".join(f"{name} {version}" for name, version in card.versions.items()) or NOT_STATED),
    )
    verify = Code("A card is a statement, not a proof. To check its signature and its ledger, run:", _VERIFY)
    missing = ", ".join(topic for topic in STATEMENTS if topic not in card.statements)
    lacking = (Code(f"Not stated: {missing}. To state a topic, the data set owner runs:", _STATE),) if missing else ()
    return Section("About this card", (Facts(rows), verify, *lacking))


def _stated(card: CardRecord, *topics: str) -> tuple[Statement, ...]:
    """Return what was stated on these topics; the last section of the card names the others."""
    return tuple(Statement(STATEMENTS[topic], card.statements[topic]) for topic in topics if topic in card.statements)


def _queries(card: CardRecord) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return how many public rows have a label, and how they were chosen."""
    if card.releases_sums:
        return ("Public rows labeled by the student", f"{card.queries:,}"), ("Rows chosen", card.selection)
    labeled = "" if card.answered is None else f", {card.answered:,} labeled"
    return ("Queries", f"{card.queries:,} queries{labeled}"), ("Queries chosen", card.selection)


def _listed(names: tuple[str, ...]) -> str:
    """Return the names, of very many only the first and their number; the JSON card has them all."""
    if not names:
        return NOT_STATED
    shown = ", ".join(names[:_MOST_LISTED])
    return shown if len(names) <= _MOST_LISTED else f"{shown}, … ({len(names):,} in all)"


def answers_of(card: CardRecord) -> Facts:
    """Return the fifteen questions with their answers; a section that holds the answer is named."""
    budget = card.budget
    labels = f"abels of at most {card.queries:,} public rows"
    leaves = f"L{labels}, a student that learned from them"
    if card.releases_sums:
        summed = counted(card.sums, "noisy sum", "noisy sums")
        source = "it" if card.sums == 1 else "them"
        leaves = f"{summed} of ballots, a student that is computed from {source}, and its l{labels}"
    leaves += f"; this card, and for auditors a copy of the ledger without its key. {_STAYS[card.model]}"
    ledger = (
        f"{card.spending.spent} of ε = {card.spending.budget} is spent. The ledger is a chain of hashes; its head is "
        "on this card, so a change can be detected."
    )
    bound = "is tied to one data set" if budget.get("bound") else "is not tied to a data set"
    others = f"The ledger {bound}. It counts only releases that are made through it."
    network = "needs no network" if card.model == "central" else "needs a network between the members"
    see = "See {}.".format
    questions = (  # with the topic of a statement, and what the card knows
        ("What is the unit of privacy: record, encounter, patient, or site?", "", see("Unit of privacy")),
        ("What exactly leaves each site?", "leaves_site", leaves),
        ("Who is trusted with what?", "trust", see("Trust model")),
        ("Which ε, δ, unit and proof, and why this ε?", "why_epsilon", see("Privacy parameters")),
        ("Is the reported ε itself safe to publish?", "", publishable(card)),
        ("How much budget is spent, and would a change be detected?", "", ledger),
        ("Which independent evidence is there?", "evidence", None),
        ("What about side channels?", "side_channels", see("Side channels")),
        ("What if a site drops out, is dishonest, or consent is withdrawn?", "withdrawal", SPENT_STAYS_SPENT),
        ("Do public and private data overlap, and where do the public rows come from?", "overlap", None),
        ("Which groups are served worse?", "fairness", _fairness(card)),
        ("What else is released about the same people?", "other_releases", others),
        ("How does this map to NIST SP 800-226?", "", _NIST),
        ("What is the legal assessment?", "legal", None),
        ("Can the software be rebuilt, and does it use the network?", "exit", f"{_EXIT} A release {network}."),
    )
    answers = (
        (f"{number}. {question}", _answer(card, topic, known))
        for number, (question, topic, known) in enumerate(questions, 1)
    )
    return Facts(tuple(answers))


_SECTION_OF = {
    **dict.fromkeys(("leaves_site", "trust"), "Trust model"),
    **dict.fromkeys(("overlap", "withdrawal", "legal"), "Data collection exposure"),
    "why_epsilon": "Privacy parameters",
    "evidence": "Algorithms and correctness",
    "side_channels": "Side channels",
    "fairness": "Bias",
    "other_releases": "Privacy budget",
}


def _answer(card: CardRecord, topic: str, known: str | None) -> str:
    """Return what is known and stated; a statement that a section quotes is not quoted again."""
    stated = card.statements.get(topic)
    if stated is not None:
        stated = f"See {_SECTION_OF[topic]}." if topic in _SECTION_OF else f"Stated: {stated}"
    return " ".join(dict.fromkeys(filter(None, (known, stated)))) or NOT_STATED


def publishable(card: CardRecord) -> str:
    """Return whether the printed ε may itself be published, and why."""
    if card.epsilon.simulated:
        return "There is no ε to publish: the noise was simulated."
    text = "Yes. It is computed from public settings alone and holds for every possible set of votes or ballots."
    if card.sanitised is not None:
        text += f" The second ε depends on the votes. It may be published because of this: {card.sanitised.method}."
    return text


def _fairness(card: CardRecord) -> str | None:
    shares = [entry.right / entry.rows for entry in card.accuracy_by_class if entry.rows]
    if not shares:
        return None
    return f"By class, on public rows: {min(shares):.1%} to {max(shares):.1%} right. Other groups were not measured."
