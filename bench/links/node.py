"""TCP to another node, where `python -m bench peer` serves the other end."""

from __future__ import annotations

import hmac
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.errors import DeviceError, ResourceError, UsageError
from bench.links.connection import Connection
from bench.links.peer import Peer, receive, tune

VARIABLE = "ROOFLINE_PEER"
"""Environment variable that tells the processes of a run where the peer is."""

PORT = 18515
TOKEN_BYTES = 8
CONNECT_SECONDS = 10.0
WELCOME = b"+"
TEXT = re.compile(
    rf"(?P<token>[0-9a-f]{{{2 * TOKEN_BYTES}}})@(?P<host>\[[^]]+\]|[^:@]+)(:(?P<port>[0-9]{{1,5}}))?"
)


@dataclass(frozen=True)
class Address:
    """Where a peer listens, and the word that it lets in."""

    token: str
    host: str
    port: int = PORT

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parsed(text: str) -> Address:
    """TOKEN@HOST[:PORT] as the peer prints it; UsageError for other text."""
    found = TEXT.fullmatch(text)
    if not found or not 0 < int(found["port"] or PORT) < 1 << 16:
        raise UsageError(
            f"--peer {text!r} is not TOKEN@HOST:PORT: run `python3 -m bench peer` on the other node and give "
            "what it prints"
        )
    return Address(found["token"], found["host"].strip("[]"), int(found["port"] or PORT))


class Node(Connection):
    """A connection to the peer on another node."""

    def __init__(self, address: Address, cpus: tuple[int, ...]) -> None:
        self.address = address
        try:
            link = socket.create_connection((address.host, address.port), timeout=CONNECT_SECONDS)
        except OSError as error:
            raise DeviceError(
                f"no peer answers at {address} ({error.strerror or error}): start `python3 -m bench peer` "
                "there, and let connections to its port pass"
            ) from None
        try:
            link.sendall(bytes.fromhex(address.token))
            receive(link, memoryview(bytearray(1)))
        except OSError:
            link.close()
            raise DeviceError(
                f"the peer at {address} does not let us in: give the --peer that it prints now"
            ) from None
        super().__init__(link, cpus)

    def lost(self, error: OSError) -> str:
        """See Connection."""
        return (
            f"the peer at {self.address} was lost in the middle of a transfer ({error.strerror or error}): "
            "look whether it still runs there, and run again"
        )


_nodes: dict[tuple[int, ...], Node] = {}


def kept(cpus: tuple[int, ...], environment: Mapping[str, str] = os.environ) -> Node:
    """The connection that the points of this process share; a new one after it was lost."""
    known = _nodes.get(cpus)
    if known is None or known.socket.fileno() < 0:
        if not environment.get(VARIABLE):
            raise DeviceError("no peer on another node was named: give --peer")
        _nodes[cpus] = Node(parsed(environment[VARIABLE]), cpus)
    return _nodes[cpus]


def serve(listen: str, port: int, told: Callable[[str], None], token: str = "") -> None:
    """Obey runs on other nodes that know the token, until interrupted; ResourceError without the port.

    told: gets what --peer takes there, once
    """
    token = token or secrets.token_hex(TOKEN_BYTES)
    family = socket.AF_INET6 if ":" in listen else socket.AF_INET
    try:
        server = socket.create_server((listen, port), family=family)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ResourceError(
            f"port {port} of {listen} cannot be opened ({why}): name another with --port, or with --listen"
        ) from None
    with server:
        told(f"{token}@{socket.gethostname()}:{server.getsockname()[1]}")
        while True:
            link, _ = server.accept()
            threading.Thread(target=_obey, args=(link, bytes.fromhex(token)), daemon=True).start()


def _obey(link: socket.socket, token: bytes) -> None:
    """One connection: the token first, then requests until it ends."""
    with link:
        try:
            link.settimeout(CONNECT_SECONDS)
            given = bytearray(len(token))
            receive(link, memoryview(given))
            if not hmac.compare_digest(bytes(given), token):
                return
            link.settimeout(None)
            tune(link)
            link.sendall(WELCOME)
            Peer(link).serve()
        except OSError:
            return
