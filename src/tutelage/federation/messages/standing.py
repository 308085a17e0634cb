"""How far the batches of a consortium are, from the names of what lies in its mailbox."""

from typing import NamedTuple

from tutelage.exceptions import FederationError, InvalidDataError
from tutelage.federation.members.consortium import Consortium
from tutelage.federation.messages.mailbox import Mailbox


class Standing(NamedTuple):
    """How far one batch is; public.

    Parameters
    ----------
    batch : str
        Its identifier.
    queries : int
        Its size.
    answered : tuple of str
        Entities that sent something for every recipient; nothing of it was opened.
    computed : tuple of str
        Computing parties that sent labels.
    """

    batch: str
    queries: int
    answered: tuple[str, ...]
    computed: tuple[str, ...]


class Standings(NamedTuple):
    """How far all batches are; public.

    Parameters
    ----------
    batches : list of Standing
        Those that the aggregator signed.
    refused : dict of str to str
        Why the others are not taken, by their identifier.
    """

    batches: list[Standing]
    refused: dict[str, str]


def standing(consortium: Consortium, mailbox: Mailbox) -> Standings:
    """Return how far every batch in the mailbox is; a forged or damaged one says nothing about the others."""
    found, parties = Standings([], {}), [party.name for party in consortium.computing_parties]
    for identifier in mailbox.batch_identifiers():
        try:
            batch = mailbox.batch(identifier, consortium)
        except (FederationError, InvalidDataError) as error:
            found.refused[identifier] = str(error)
            continue
        entities = (entity.name for entity in consortium.entities)
        answered = tuple(entity for entity in entities if mailbox.has_answered(batch, entity, parties))
        computed = tuple(party for party in parties if mailbox.has_computed(batch, party))
        found.batches.append(Standing(identifier, batch.n_queries, answered, computed))
    return found
