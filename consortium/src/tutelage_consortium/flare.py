"""A mailbox kept in step over NVIDIA FLARE: the components that its processes load, and their rules for files.

FLARE proves who sends, encrypts and connects again. Every message but those of the mailbox is dropped unread: no job
runs, and no administrator is obeyed. Only processes that `tutelage_consortium.kits` starts load this module.
"""

import os
import re
import secrets
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, cast

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import CellMessageAuthHeaderKey, FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic, MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming import stream_const

from tutelage._internal.gate import read_input
from tutelage._internal.records import Entries
from tutelage.exceptions import InvalidDataError
from tutelage_consortium.documents import MOST_BYTES
from tutelage_consortium.files import write_once

CHANNEL = "tutelage"
TOPIC = "mail"
ROUND_BYTES, _MOST_WANTED = 2**23, 1_000  # of files in a message, a longer one alone; and of names
# Seconds between messages, and without any progress.
_SHORTEST, _LONGEST, _PATIENCE = 0.25, 2.0, 60.0
_TOKEN_CHARACTERS = 36
_STREAM = stream_const.STREAM_CHANNEL
_NEEDED = {
    (CellChannel.SERVER_MAIN, CellChannelTopic.Challenge),
    (CellChannel.SERVER_MAIN, CellChannelTopic.Register),
    (CellChannel.SERVER_MAIN, CellChannelTopic.HEART_BEAT),
    (CellChannel.SERVER_MAIN, CellChannelTopic.Quit),
    (CellChannel.CELLNET, CellChannelTopic.Bye),
    (_STREAM, stream_const.STREAM_ACK_TOPIC),
    (_STREAM, stream_const.STREAM_ERROR_TOPIC),
    (CHANNEL, TOPIC),
    (CellChannel.RETURN_ONLY, f"{CHANNEL}:{TOPIC}"),
}
_DELIVERED = ("members/", "shares/", "labels/", "accepted/")
# A file has a dot in its name and a folder has none, so that neither can take the place of the other.
_PLACE = re.compile(
    rf"({'|'.join(_DELIVERED)}|batches/|rosters/)([A-Za-z0-9][A-Za-z0-9_-]{{0,99}}/)?"
    r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}(\.[A-Za-z0-9_-]{1,99}){1,4}"
)


def _is_place(path: str) -> bool:
    """Return whether a file of a mailbox may have this path below it."""
    return _PLACE.fullmatch(path) is not None


def _may_deliver(path: str, name: str) -> bool:
    """Return whether the member of that name may put a file there: in its own name only."""
    return (
        _is_place(path)
        and path.startswith(_DELIVERED)
        and path.rpartition("/")[2].startswith(f"{name}.")
    )


def _is_for(path: str, name: str) -> bool:
    """Return whether the member of that name gets this file: every one but the shares between two others."""
    sender, _, recipient = path.rpartition("/")[2].partition(".to-")
    mine = sender == name or recipient.partition(".")[0] == name
    return not path.startswith("shares/") or mine


_Header = Callable[[str], object]


class _Mail(FLComponent):
    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = Path(folder)
        self._name = ""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Guard FLARE before it knows anyone, and begin when it has started."""
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            try:
                threading.Thread(target=_end_with_parent, daemon=True).start()
                self._engine = cast("Any", fl_ctx).get_engine()
                self._engine.get_cell().core_cell.add_incoming_filter("*", "*", self._drop)
            except Exception as error:
                # Any other class would be ignored.
                raise UnsafeComponentError("FLARE cannot be guarded.") from error
        elif event_type == EventType.SYSTEM_START:
            self._name = str(cast("Any", fl_ctx).get_identity_name())
            self._begin(self._engine.get_cell())

    def _begin(self, cell: Any) -> None:
        raise NotImplementedError

    def _drop(self, message: Message) -> Message | None:
        """Return an answer, which drops the message before it is decoded, unless the mailbox needs it."""
        header = cast("_Header", message.get_header)
        about = (header(MessageHeaderKey.CHANNEL), header(MessageHeaderKey.TOPIC))
        if about == (_STREAM, stream_const.STREAM_DATA_TOPIC):
            keys = stream_const.StreamHeaderKey
            about = (header(keys.CHANNEL), header(keys.TOPIC))
        own: str = self._engine.get_cell().get_fqcn()
        if header(MessageHeaderKey.DESTINATION) == own and about in _NEEDED:
            return None
        return make_reply(ReturnCode.INVALID_REQUEST)

    def _files(self) -> list[str]:
        """Return the paths of the files that lie in the folder."""
        root = f"{self._folder}/"
        found = (
            f"{at}/{name}".removeprefix(root)
            for at, _, names in os.walk(self._folder)
            for name in names
        )
        return sorted(filter(_is_place, found))

    def _read(self, path: str) -> bytes | None:
        try:
            return read_input(self._folder / path, MOST_BYTES, follow=False)
        except OSError as error:
            self.logger.warning(f"{path} cannot be sent: {error.strerror}.")
            return None


class MailServer(_Mail):
    """The server's part: it takes from each member what is in that member's name, and gives what is for it."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._epoch = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._listed = dict[str, None]()
        self._looked = 0.0

    def _begin(self, cell: Any) -> None:
        cell.register_request_cb(channel=CHANNEL, topic=TOPIC, cb=self._answer)

    def _answer(self, request: Message) -> Message:
        name = self._sender(request)
        if name is None:
            return make_reply(ReturnCode.UNAUTHENTICATED)
        try:
            return make_reply(ReturnCode.OK, "", self.exchange(name, request.payload))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self.logger.warning(f"A message from {name} is refused: {error!r}")
            return make_reply(ReturnCode.INVALID_REQUEST)

    def _sender(self, request: Message) -> str | None:
        """Return which member sent a message, or None if that is not certain.

        FLARE's filter has checked the same, but lets everything pass until it has its certificate, after which it says
        that it is secure; and it signs name and token as one string, so that only the length of the token tells "ab"
        with "c…" from "a" with "bc…".
        """
        with self._engine.new_context() as context:
            is_secure = context.get_prop(FLContextKey.SECURE_MODE, False)
        keys = CellMessageAuthHeaderKey
        header = cast("_Header", request.get_header)
        name = header(keys.CLIENT_NAME)
        token = header(keys.TOKEN)
        if not (
            is_secure
            and isinstance(name, str)
            and isinstance(token, str)
            and len(token) == _TOKEN_CHARACTERS
        ):
            return None
        is_signed = self._engine.server.verify_auth_token(
            name, token, request.get_header(keys.TOKEN_SIGNATURE)
        )
        return name if is_signed else None

    def exchange(self, name: str, asked: Entries) -> Entries:
        """Take a member's files, and return names that it was not told yet, and files that it wants."""
        refused = [path for path, data in asked["put"].items() if not self._take(name, path, data)]
        epoch, told = asked["seen"]
        with self._lock:
            if time.monotonic() - self._looked > _SHORTEST or asked["put"]:
                self._listed.update(dict.fromkeys(self._files()))
                self._looked = time.monotonic()
            listed = list(self._listed)
        new = listed[told:] if epoch == self._epoch else listed
        files = dict[str, bytes | None]()
        size = 0
        for path in asked["want"]:
            if size < ROUND_BYTES and path in self._listed and _is_for(path, name):
                files[path] = self._read(path)
                size += len(files[path] or b"")
        names = [path for path in new if _is_for(path, name)]
        return {
            "seen": [self._epoch, len(listed)],
            "names": names,
            "files": files,
            "refused": refused,
        }

    def _take(self, name: str, path: str, data: object) -> bool:
        """Store one file of a member, and return whether it is there."""
        try:
            if not (
                _may_deliver(path, name) and isinstance(data, bytes) and len(data) <= MOST_BYTES
            ):
                raise InvalidDataError(
                    "Its name or folder is not one that this member may write, or it is too long."
                )
            write_once(self._folder / path, data)
        except InvalidDataError as error:
            self.logger.warning(f"{path!r} from {name} is refused. {error}")
            return False
        return True


class MailClient(_Mail):
    """A member's part: it gives the server the files in its own name, and takes those that are lacking here."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._seen: list[object] = ["", 0]  # epoch of the server, and how many names it told
        self._lost = Signal()
        self._here = dict[str, None]()
        self._wanted = dict[str, None]()
        self._there = set[str]()  # paths that the server has

    def _begin(self, cell: Any) -> None:
        cell.core_cell.set_cell_disconnected_cb(self._end_exchange)
        threading.Thread(target=self._carry, args=(cell,), daemon=True).start()

    def _end_exchange(self, _cell: object) -> None:
        self._lost.trigger(True)

    def _carry(self, cell: Any) -> None:
        said = ""
        last = time.monotonic()
        while True:
            state = "The mailbox is in step with the server's."
            # No wait is a fortieth longer.
            pause = min(max((time.monotonic() - last) / 40, _SHORTEST), _LONGEST)
            try:
                self._lost = Signal()
                reply = cell.send_request(
                    channel=CHANNEL,
                    topic=TOPIC,
                    request=Message({}, self.next_request()),
                    optional=True,
                    target=FQCN.ROOT_SERVER,
                    timeout=_PATIENCE,
                    abort_signal=self._lost,
                )
                code = reply.get_header(MessageHeaderKey.RETURN_CODE)
                if code != ReturnCode.OK:
                    raise ConnectionError(code)
                if self.take(reply.payload):
                    pause = 0.0
                    last = time.monotonic()
            except Exception as error:
                # No message of a server and no full disk may end the thread.
                pause = _LONGEST
                state = f"An exchange with the server failed: {error!r}"
                # It is unknown which messages arrived, so the server must list them again.
                self._seen = ["", 0]
            if state != said:
                self.logger.info(state)
                said = state
            time.sleep(pause)

    def next_request(self) -> Entries:
        """Return the next message: files that the server may lack, and names of files that are lacking here."""
        put = dict[str, bytes]()
        size = 0
        self._here = dict.fromkeys(self._files())
        if self._seen[0]:  # not before the server has said what is there
            for path in self._here:
                if (
                    size < ROUND_BYTES
                    and path not in self._there
                    and _may_deliver(path, self._name)
                ):
                    self._there.add(path)
                    data = self._read(path)
                    if data is not None:
                        put[path] = data
                        size += len(data)
        return {"seen": self._seen, "put": put, "want": list(islice(self._wanted, _MOST_WANTED))}

    def take(self, reply: Entries) -> bool:
        """Store what the server sent, if it lacks here, and return whether there was anything."""
        # All that is there; the server may have started with another folder.
        if reply["seen"][0] != self._seen[0]:
            self._there = set[str]()
            self._wanted = dict[str, None]()
        self._there.update(reply["names"])
        lacking = (path for path in reply["names"] if _is_place(path) and path not in self._here)
        self._wanted.update(dict.fromkeys(lacking))
        for path, data in reply["files"].items():
            if path in self._wanted:
                if data is not None:
                    write_once(self._folder / path, data)
                del self._wanted[path]
        for path in reply["refused"]:
            self.logger.warning(f"The server refuses {path!r}; its log says why.")
        self._seen = reply["seen"]
        return bool(reply["names"] or reply["files"])


def _end_with_parent() -> None:
    """End this process when its standard input ends: a pipe that closes with the process that started it."""
    while os.read(0, 1):
        pass
    os._exit(1)
