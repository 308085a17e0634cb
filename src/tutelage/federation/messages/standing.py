"""How far the batches of a consortium are, from the names of what lies in its mailbox."""

from typing import NamedTuple

from tutelage.federation.members.consortium import Consortium
from tutelage.federation.messages.batches import Batch
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


def standing(consortium: Consortium, mailbox: Mailbox) -> list[Standing]:
    """Return how far every batch in the mailbox is.

    Raises
    ------
    ForgedMessageError, StaleBatchError
        If a batch was not signed by this consortium's aggregator.
    """
    return [_standing(consortium, mailbox, identifier) for identifier in mailbox.batch_identifiers()]


def _standing(consortium: Consortium, mailbox: Mailbox, identifier: str) -> Standing:
    batch = mailbox.batch(identifier, consortium)
    parties = [party.name for party in consortium.computing_parties]
    answered = (entity.name for entity in consortium.entities if _answered(mailbox, batch, entity.name, parties))
    computed = (party for party in parties if mailbox.labels(batch, party))
    return Standing(identifier, batch.n_queries, tuple(answered), tuple(computed))


def _answered(mailbox: Mailbox, batch: Batch, entity: str, parties: list[str]) -> bool:
    if not parties:
        return mailbox.ballots(batch, entity) is not None
    return all(mailbox.shares(batch, entity, party) is not None for party in parties)
