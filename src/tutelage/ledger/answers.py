"""The answers that a ledger remembers, one per query, and the maps that it keeps for releases."""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence

from tutelage._internal.typing import ABSTAIN
from tutelage.digests import canonical, with_lengths
from tutelage.events import (
    CappedArgmaxGaussian,
    Check,
    Event,
    InteractiveCheck,
    NoisySumGaussian,
    Repeated,
    count_releases,
)
from tutelage.exceptions import LedgerTamperedError, UnsupportedEventError
from tutelage.ledger.entries import EntryKind
from tutelage.ledger.transaction import Transaction

Labels = tuple[int, ...]
# Numbers and sums in one answer of noisy sums, where −1 is a number like any other.
Vector = tuple[int, int]


def vector_of(event: Event) -> Vector | None:
    """Return the form of an answer, or None for labels; sums and labels in one answer are refused."""
    parts = event.flatten()
    kinds = [(part.event.without_shares(), part.times) for part in parts]
    sums = [(kind.dimension, times) for kind, times in kinds if isinstance(kind, NoisySumGaussian)]
    if sums and len(sums) < len(parts):
        raise UnsupportedEventError(
            "A batch must consist of noisy sums only, or of none. Reserve two batches."
        )
    if not sums:
        return None
    numbers = sum(dimension * times for dimension, times in sums)
    return numbers, sum(times for _, times in sums)


def answers_in(labels: Sequence[int], vector: Vector | None) -> int | None:
    """Return how many answers a stored tuple holds, abstentions aside, or None if a vector has another length."""
    if vector is None:
        return sum(label != ABSTAIN for label in labels)
    numbers, sums = vector
    if len(labels) != numbers:
        return None
    return sums


def breach_of(
    reserved: Event, queries: int, happened: Event, given: Collection[int | None]
) -> str | None:
    """Return what a batch that "the mechanism …" reports does not keep to, or None.

    Every check that was reserved is run, nothing more than was reserved is, and answers are given back only where a
    check stood before them, as many as there are queries without a label. Capped votes answer any number of queries.
    """
    allowed = count_releases([Repeated(reserved, queries)])
    ran = count_releases([happened])
    if ran - allowed:
        return "ran more than it had announced"

    checks = [event for event in allowed if isinstance(event.without_shares(), Check)]
    if any(ran[event] != allowed[event] for event in checks) or (not checks and ran != allowed):
        return "reports fewer checks, or fewer answers without a check, than it had announced"
    if None in given:
        return "gives a noisy sum of another length than it had announced"

    # Where a student is confirmed, some labels are its own.
    confirms = any(isinstance(event.without_shares(), InteractiveCheck) for event in checks)
    if confirms or isinstance(reserved, CappedArgmaxGaussian):
        return None
    answers = sum(
        times for event, times in ran.items() if not isinstance(event.without_shares(), Check)
    )
    if sum(count or 0 for count in given) > answers:
        return "gives more labels than it reports answers"
    return None


def digest_of(answers: Iterable[tuple[bytes, str]]) -> str:
    """Return a digest of the answers of one batch, in the order of their queries' hashes."""
    digest = hashlib.sha256()
    for query, labels in answers:
        digest.update(with_lengths(query, labels.encode()))
    return digest.hexdigest()


def read_labels(text: str) -> list[int]:
    """Return the labels of a remembered answer."""
    labels: list[int] | None
    try:
        labels = json.loads(text)
    except (ValueError, RecursionError):
        labels = None
    if (
        not isinstance(labels, list)
        or canonical(labels) != text
        or any(type(label) is not int for label in labels)
    ):
        raise LedgerTamperedError(
            "A remembered answer is not in the form in which answers are written."
        )
    return labels


def remembered_answers(read: Transaction, queries: Collection[bytes]) -> dict[bytes, Labels]:
    """Return the answers of those queries that have one."""
    answers = dict[bytes, Labels]()
    for query in queries:
        labels = read.one("SELECT labels FROM answers WHERE query = ?", query)
        if labels is not None:
            answers[query] = tuple(read_labels(labels))
    return answers


def remember(
    write: Transaction, answers: dict[bytes, Labels], reservation: int
) -> list[tuple[bytes, str]]:
    """Store the answers of queries that have none, and return those that were stored, in the order of their hashes."""
    new = list[tuple[bytes, str]]()
    for query, labels in sorted(answers.items()):
        text = canonical(labels)
        inserted = write.run(
            "INSERT OR IGNORE INTO answers VALUES (?, ?, ?)", (query, text, reservation)
        )
        if inserted.rowcount == 1:
            new.append((query, text))
    return new


def stored_answers(
    read: Transaction, reservation: int | None = None
) -> Iterator[tuple[int, bytes, str]]:
    """Yield reservation, query and labels of every stored answer, or those of one reservation, by query hash."""
    chosen = "SELECT reservation, query, labels FROM answers WHERE ?1 IS NULL OR reservation = ?1 ORDER BY query"
    yield from read.run(chosen, (reservation,))


def drawn_under(read: Transaction, query: bytes) -> set[int]:
    """Return the reservation of the stored answer of a query, and that of its campaign."""
    number = read.one("SELECT reservation FROM answers WHERE query = ?", query)
    if number is None:
        return set()
    entry = read.entry(number)
    if entry is None:
        return set()
    return {entry.number, entry.content.get("campaign", entry.number)}


def kept_content(read: Transaction, name: str) -> bytes | None:
    """Return what is kept under a keyed name, or None; refuse it if it is not what its entry says."""
    content = read.one("SELECT content FROM kept WHERE name = ?", name)
    recorded = [
        entry.content["content"]
        for entry in read.entries_with("name", name)
        if entry.kind is EntryKind.KEPT
    ]
    if recorded != ([] if content is None else [_sha256(content)]):
        raise LedgerTamperedError(
            "A map that the ledger keeps was changed. Restore a copy that verifies."
        )
    return content


def keep(write: Transaction, name: str, content: bytes) -> bytes:
    """Keep content under a keyed name, with an entry that holds its digest, unless something is kept there already."""
    earlier = kept_content(write, name)
    if earlier is not None:
        return earlier
    write.run("INSERT INTO kept VALUES (?, ?)", (name, content))
    write.add(EntryKind.KEPT, name=name, content=_sha256(content))
    return content


def digests_of_kept(read: Transaction) -> dict[str, str]:
    """Return the digest of everything that is kept, by its name."""
    return {name: _sha256(content) for name, content in read.run("SELECT * FROM kept")}


def _sha256(content: object) -> str:
    if not isinstance(content, bytes):
        raise LedgerTamperedError(
            "A map that the ledger keeps was changed. Restore a copy that verifies."
        )
    return hashlib.sha256(content).hexdigest()
