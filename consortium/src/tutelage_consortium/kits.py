"""Kits, with which NVIDIA FLARE carries the mailbox of a consortium between machines.

A kit holds an address, a certificate and its private key, and nothing that is run: all else that FLARE reads is written
here at each start.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tutelage._internal.extras import install
from tutelage._internal.records import frozen, record_in
from tutelage.exceptions import FederationError, InvalidParameterError, quote
from tutelage.signing import document, require_name
from tutelage_consortium.files import read_within, write_again, write_new

SERVER = "server"  # FLARE's own name for it
_DAYS = 3_650
_KEYS = {"ssl_private_key": "kit.key", "ssl_cert": "kit.crt", "ssl_root_cert": "rootCA.pem"}
_COMPONENTS = {
    "server": "tutelage_consortium.flare.MailServer",
    "client": "tutelage_consortium.flare.MailClient",
}
_LOG = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {
        "out": {
            "class": "logging.StreamHandler",
            "formatter": "plain",
            "stream": "ext://sys.stdout",
        }
    },
    "root": {"level": "WARNING", "handlers": ["out"]},
    "loggers": {"tutelage": {"level": "INFO"}, "nvflare.fuel.f3.drivers": {"level": "INFO"}},
}
_ALIVE = {  # a connection that ended in silence is known to be lost in half a minute
    "keepalive_time_ms": 10_000,
    "keepalive_timeout_ms": 20_000,
    "http2.ping_timeout_ms": 20_000,
    "http2.max_pings_without_data": 0,
    "http2.min_recv_ping_interval_without_data_ms": 5_000,
}
_COMMUNICATION = {
    "allow_adhoc_conns": False,
    # FLARE listens on the machine for its own jobs too; only who has a certificate can speak to it.
    "internal": {
        "scheme": "tcp",
        "resources": {"host": "localhost", "connection_security": "mtls"},
    },
    "grpc": {
        "max_workers": 1_000,
        "options": [(f"grpc.{name}", value) for name, value in _ALIVE.items()],
    },
    "streaming_max_blob_size": 2**29,
    # Little is under way at a time and nothing is sent twice early, so that a slow line is no lost one.
    "streaming_chunk_size": 2**16,
    "streaming_window_size": 2**19,
    "streaming_ack_interval": 2**17,
    "streaming_retry_wait": 30.0,
    "streaming_retry_timeout": 120.0,
}


@frozen
class _Kit:
    """Whose kit it is, and where the server listens, as HOST:PORT."""

    consortium: str
    name: str
    server: str

    def __post_init__(self) -> None:
        require_name(self.name, "a kit")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*:[0-9]{1,5}", self.server):
            raise InvalidParameterError("a kit.server", "be HOST:PORT", quote(self.server))


@frozen
class Carrier:
    """A process of FLARE; it ends with the process that started it."""

    process: subprocess.Popen[bytes]
    log: Path

    def alive(self) -> bool:
        """Return whether it runs; one that ended can be started again."""
        return self.process.poll() is None

    def stop(self) -> None:
        """End it; what it was carrying arrives after the next start."""
        with self.process:
            self.process.kill()


def provision(folder: Path, consortium: str, server: str, members: Sequence[str]) -> None:
    """Make the kit of the server in ``server``, and of each member in ``members/NAME``, below `folder`.

    Kits that are there stay as they are, so that members can be added. ``authority`` holds the key that signs them all.
    """
    _require_flare()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from nvflare.lighter.utils import (
        Identity,
        generate_cert,
        generate_keys,
        serialize_cert,
        serialize_pri_key,
    )

    if len({name.lower() for name in [SERVER, *members]}) != len(members) + 1:
        raise InvalidParameterError(
            "Consortium.members",
            f"have names that differ by more than case, none of them {SERVER!r}",
        )
    places = {SERVER: folder / SERVER, **{name: folder / "members" / name for name in members}}
    kits = [_Kit(consortium, name, server) for name in places]
    issuer = Identity("tutelage")
    authority = folder / "authority"
    if not authority.exists():
        key, public = generate_keys()
        root = generate_cert(issuer, issuer, key, public, _DAYS, ca=True)
        _put(authority, {"rootCA.key": serialize_pri_key(key), "rootCA.pem": serialize_cert(root)})
    signing = load_pem_private_key((authority / "rootCA.key").read_bytes(), None)
    for kit in kits:
        if not places[kit.name].exists():
            key, public = generate_keys()
            host = server.partition(":")[0] if kit.name == SERVER else None
            signed = generate_cert(
                Identity(kit.name),
                issuer,
                signing,
                public,
                _DAYS,
                server_default_host=host,
            )
            keys = {"kit.key": serialize_pri_key(key), "kit.crt": serialize_cert(signed)}
            root = (authority / "rootCA.pem").read_bytes()
            _put(places[kit.name], {"kit.json": document("kit", kit), "rootCA.pem": root, **keys})


def move(path: Path, server: str) -> None:
    """Say in a member's kit that the server is at another address."""
    write_again(path / "kit.json", document("kit", replace(_read(path), server=server)))


def start(path: Path, mailbox: Path) -> Carrier:
    """Start the process of a kit; `mailbox` is the folder that a server gives to members, or a member's copy of it."""
    _require_flare()
    path = path.absolute()
    kit = _read(path)
    side = "server" if kit.name == SERVER else "client"
    workspace = path / "flare"
    with (path / "log.txt").open("ab") as log:
        try:
            # The process below inherits the file, so the lock lasts until it ends.
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FederationError(
                f"{path} is in use by a process that runs. Stop it first."
            ) from None
        if workspace.exists():
            shutil.rmtree(workspace)
        files = {
            name: json.dumps(content).encode()
            for name, content in _settings(kit, side, mailbox).items()
        }
        files |= {f"startup/{name}": read_within(path / name) for name in _KEYS.values()}
        for name, data in files.items():
            write_new(workspace / name, data)
        run = [
            sys.executable,
            "-P",
            "-u",
            "-m",
            f"nvflare.private.fed.app.{side}.{side}_train",
            "-m",
            str(workspace),
        ]
        run += [
            "-s",
            f"fed_{side}.json",
            "--set",
            "secure_train=true",
            f"uid={kit.name}",
            "org=x",
            "config_folder=",
        ]
        surroundings = {**os.environ, "MALLOC_ARENA_MAX": "2"}
        process = subprocess.Popen(  # noqa: S603  the command is made here
            run,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=workspace,
            env=surroundings,
        )
    return Carrier(process, path / "log.txt")


def _read(path: Path) -> _Kit:
    damaged = FederationError(f"{path} is not a kit, or it is damaged.")
    return record_in(read_within(path / "kit.json"), "kit", _Kit, damaged)


def _settings(kit: _Kit, side: str, mailbox: Path) -> dict[str, Any]:
    """Return by name what FLARE reads: one component, and no permission for anything else."""
    tls = {**_KEYS, "connection_security": "mtls"}
    server = {
        "name": kit.consortium,
        "service": {"target": kit.server, "scheme": "grpc"},
        "identity": SERVER,
    }
    if side == "server":
        start = {"servers": [{**server, **tls, "max_num_clients": 1_000, "heart_beat_timeout": 60}]}
    else:
        start = {
            "servers": [server],
            "client": {"fqsn": kit.name, "client_register_interval": 0.5, **tls},
        }
    component = {
        "id": "mail",
        "path": _COMPONENTS[side],
        "args": {"folder": str(mailbox.absolute())},
    }
    allowed = {
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": list(_COMPONENTS.values()),
    }
    return {
        f"startup/fed_{side}.json": {"format_version": 2, **start},
        "local/resources.json": {"format_version": 2, **allowed, "components": [component]},
        "local/authorization.json": {"format_version": "1.0", "permissions": {"member": "none"}},
        "local/comm_config.json": _COMMUNICATION,
        "local/log_config.json": _LOG,
    }


def _put(folder: Path, files: dict[str, bytes]) -> None:
    """Make a folder with these files, all of them or none."""
    draft = folder.with_name(f".{folder.name}.part")
    if draft.exists():
        shutil.rmtree(draft)
    draft.mkdir(parents=True, mode=0o700)
    for name, data in files.items():
        write_new(draft / name, data)
    draft.rename(folder)


def _require_flare() -> None:
    if find_spec("nvflare") is None:
        raise FederationError(f"Kits need NVIDIA FLARE: {install('flare', 'tutelage-consortium')}.")
