"""The base class of the parts of a privacy card, and the ranges of their numbers."""

from typing import Annotated

from msgspec import Meta, Struct

MOST = 1e15  # whole numbers up to it are floats exactly

Share = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0, le=MOST)]
Count = Annotated[int, Meta(ge=0, le=int(MOST))]


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of what a card is made of."""
