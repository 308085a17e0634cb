"""How far the batches of a consortium are, from what lies in its mailbox; nothing is opened."""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from tutelage.exceptions import FederationError, InvalidDataError
from tutelage.federation.members.consortium import Consortium
from tutelage.federation.members.keys import Member
from tutelage.federation.messages.batches import Batch
from tutelage.federation.messages.envelopes import Header, Kind, sealed_by
from tutelage.federation.messages.mailbox import Mailbox


class Standing(NamedTuple):
    """How far one batch is; public."""

    batch: str
    queries: int
    answered: tuple[str, ...]
    missing: tuple[str, ...]
    computed: tuple[str, ...]
    complete: bool


class Standings(NamedTuple):
    """How far all batches are; public."""

    batches: list[Standing]
    refused: dict[str, str]


def standing(consortium: Consortium, mailbox: Mailbox) -> Standings:
    """Return how far every batch in the mailbox is; a forged or damaged one says nothing about the others."""
    found = Standings([], {})
    for identifier in mailbox.batch_identifiers():
        try:
            batch = mailbox.batch(identifier, consortium)
        except (FederationError, InvalidDataError) as error:
            found.refused[identifier] = str(error)
            continue
        found.batches.append(standing_of(consortium, mailbox, batch))
    return found


def standing_of(consortium: Consortium, mailbox: Mailbox, batch: Batch) -> Standing:
    """Return how far one batch is."""
    entities, parties = _names(consortium.entities), _names(consortium.computing_parties)
    answered = tuple(entity for entity in entities if mailbox.has_answered(batch, entity, parties))
    missing = tuple(entity for entity in entities if entity not in answered)
    runs = _runs(consortium, mailbox, batch)
    computed = tuple(party for party in parties if runs[party])
    complete = bool(runs) and bool(set.intersection(*runs.values()))
    return Standing(batch.identifier, batch.n_queries, answered, missing, computed, complete)


def _runs(consortium: Consortium, mailbox: Mailbox, batch: Batch) -> dict[str, set[str]]:
    """Return the computations of which each computing party signed labels; a file that it did not sign is skipped."""
    found: dict[str, set[str]] = {}
    for party in consortium.computing_parties:
        signed = found.setdefault(party.name, set())
        header = Header.of(consortium, batch, Kind.LABELS, party.name, consortium.aggregator.name)
        for run, envelope in mailbox.labels(batch, party.name):
            with suppress(FederationError, InvalidDataError):
                sealed_by(party, header, envelope)
                signed.add(run)
    return found


def _names(members: Sequence[Member]) -> list[str]:
    return [member.name for member in members]
