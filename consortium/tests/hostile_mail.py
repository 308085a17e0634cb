"""Components of NVIDIA FLARE that break the rules of a mailbox, for tests; loaded by FLARE's processes."""

import json
from typing import Any

from nvflare.apis.fl_constant import CellMessageAuthHeaderKey
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message

from tutelage_consortium.flare import CHANNEL, TOPIC, MailClient, MailServer

OUTSIDE = (
    "../outside.sealed",
    "members/../../outside.sealed",
    "members/..",
    "members/a/b/outside.sealed",
)
FOREIGN = (
    "members/other.json",
    "batches/forged.batch",
    "rosters/h10.json",
    "consortium.json",
    "members/h1.json",
)


class HostileClient(MailClient):
    """A member with a kit of its own, h10, that delivers what it may not, and claims to be h1."""

    def _carry(self, cell: Any) -> None:
        paths = [*OUTSIDE, *FOREIGN, str(self._folder.parent / "outside.sealed")]
        outcome = dict[str, Any]()
        puts = {
            "refused": dict.fromkeys(paths, b"x"),
            "bad": [1],
            "own": {"members/h10.new.json": b"x"},
        }
        for name, put in puts.items():
            reply = self._send(cell, put)
            is_ok = isinstance(reply.payload, dict)
            outcome[name] = (
                reply.payload["refused"]
                if is_ok
                else reply.get_header(MessageHeaderKey.RETURN_CODE)
            )
        for channel, topic in (("_net_manager", "stop"), ("hci_channel", "command")):
            reply = cell.core_cell.send_request(
                channel, topic, "server", Message({}, {}), timeout=2.0, optional=True
            )
            outcome[channel] = reply.get_header(MessageHeaderKey.RETURN_CODE)
        reply = cell.core_cell.send_request(
            "_net_manager", "echo", "h1", Message({}, b""), timeout=2.0, optional=True
        )
        outcome["h1"] = reply.get_header(MessageHeaderKey.RETURN_CODE)

        def claim(message: Message) -> None:
            """Move one character from the end of the name to the token, which FLARE signs as one string."""
            keys = CellMessageAuthHeaderKey
            message.set_header(keys.CLIENT_NAME, "h1")
            message.set_header(keys.TOKEN, f"0{message.get_header(keys.TOKEN)}")

        cell.core_cell.add_outgoing_request_filter("*", "*", claim)
        reply = self._send(cell, {"members/h1.stolen.json": b"x"})
        outcome["claimed"] = reply.get_header(MessageHeaderKey.RETURN_CODE)
        (self._folder / "outcome.json").write_text(json.dumps(outcome))

    def _send(self, cell: Any, put: Any) -> Message:
        asked = Message({}, {"seen": ["", 0], "put": put, "want": []})
        return cell.send_request(
            channel=CHANNEL, topic=TOPIC, target="server", request=asked, timeout=10.0
        )


class HostileServer(MailServer):
    """A server that sends files to where it may not."""

    def exchange(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        reply = super().exchange(name, asked)
        self.told = getattr(self, "told", 0) + 1
        good = ["members/mine.json", "members/good.json", f"members/good-{self.told}.json"]
        paths = [*OUTSIDE, str(self._folder.parent / "outside.sealed"), *good]
        return {
            **reply,
            "names": paths,
            "files": dict.fromkeys([*paths, "members/unasked.json"], b"x"),
        }
