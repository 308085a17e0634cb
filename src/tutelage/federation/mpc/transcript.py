"""What one computing party saw, written down so that it can be searched for what it must not have seen."""

import json
from pathlib import Path
from typing import final

from tutelage._files import open_private
from tutelage.federation.sharing import ELEMENT_BYTES, ElementArray, decode


@final
class Transcript:
    """A file of JSON lines: what a party received, its own inputs, and what was opened to it; elements in decimal.

    Together with the party's keys it is as private as the party's shares are.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_private(path)

    def elements(self, sender: int, payload: bytes) -> None:
        """Write field elements down, as `sharing.encode` spells them."""
        self._write({"from": sender, "elements": decode(payload, (len(payload) // ELEMENT_BYTES,)).tolist()})

    def text(self, sender: int, payload: bytes) -> None:
        """Write down a message that holds no field elements."""
        self._write({"from": sender, "bytes": payload.hex()})

    def opened(self, values: ElementArray) -> None:
        """Write down elements that all parties opened."""
        self._write({"opened": values.ravel().tolist()})

    def _write(self, line: dict[str, object]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
