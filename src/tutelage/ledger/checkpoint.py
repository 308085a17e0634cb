"""The sums over a ledger's entries, stored beside them, so that opening it takes the same time however long it is."""

import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Self, final

from tutelage.events import event_from_dict
from tutelage.exceptions import LedgerTamperedError
from tutelage.ledger.entries import Entry, Kind, canonical


@final
@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Sums over all entries up to one.

    Parameters
    ----------
    head : str
        Hash of that entry.
    answers, unsettled : int
        Answers remembered, and reservations that were never settled.
    fingerprint : str
        Keyed fingerprint of the data set; empty for a ledger that is tied to none.
    asked, simulated : bool
        Whether a label was ever reserved, and whether anything was drawn with seeded noise.
    """

    head: str
    answers: int = 0
    unsettled: int = 0
    fingerprint: str = ""
    asked: bool = False
    simulated: bool = False

    def after(self, entry: Entry) -> Self:
        """Return the sums with one more entry."""
        content, following = entry.content, replace(self, head=entry.hash.hex())
        match entry.kind:
            case Kind.BOUND:
                return replace(following, fingerprint=content["fingerprint"])
            case Kind.RESERVED:
                simulated = self.simulated or event_from_dict(content["event"]).is_simulated
                asked = self.asked or not entry.is_publication
                return replace(following, unsettled=self.unsettled + 1, asked=asked, simulated=simulated)
            case Kind.ANSWERED:
                answers = self.answers + content["answers"]
                return replace(following, unsettled=self.unsettled - 1, answers=answers)
            case Kind.OPENED | Kind.PROPOSED:
                return following

    @classmethod
    def over(cls, entries: Iterable[Entry]) -> Self:
        """Return the sums over entries, from the first one on."""
        return reduce(cls.after, entries, cls(""))

    def sealed(self, key: bytes) -> tuple[str, bytes]:
        """Return the sums as text, and a code that only the holder of the ledger's key can compute for it."""
        text = canonical(asdict(self))
        return text, _code(key, text)

    @classmethod
    def unsealed(cls, key: bytes, text: object, code: object) -> Self:
        """Return stored sums, once their code is found to be right."""
        if isinstance(text, str) and isinstance(code, bytes) and hmac.compare_digest(_code(key, text), code):
            return cls(**json.loads(text))
        raise LedgerTamperedError("The ledger's checkpoint was changed.")


def _code(key: bytes, text: str) -> bytes:
    return hmac.digest(key, b"checkpoint" + text.encode("utf-8", "surrogatepass"), hashlib.sha256)
