"""The frames that real clients and this broker have sent to each other, as text files by client and API.

A line of `<client>/<Api>.txt` is a frame: its number in the conversation, its connection, the version, `request` or `response`, and the
frame in hexadecimal digits, size first. All files of a client together are one conversation with a new broker. `make golden` captures them
again.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ottla.wire.apis import API_NAMES, KEYS
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.wire_client import WireClient

HERE = Path(__file__).parent
CLIENTS = ("librdkafka", "kafka-python", "aiokafka", "java")
ADVERTISED_PORT = 19_092
SETTINGS = (
    f"advertised.listeners=PLAINTEXT://127.0.0.1:{ADVERTISED_PORT}",
    "auto.create.topics.enable=false",
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "ottla.log.format=text",
)
"""Answers name this port, so that they are the same whichever port the broker listens on."""


class Frame(NamedTuple):
    number: int
    connection: int
    key: int
    version: int
    is_request: bool
    data: bytes


def files(client: str) -> list[Path]:
    return sorted((HERE / client).glob("*.txt"))


def read(path: Path) -> list[Frame]:
    """The frames of one file."""
    rows = [line.split() for line in path.read_text(encoding="ascii").splitlines() if not line.startswith("#")]
    key = KEYS[path.stem]
    return [
        Frame(int(number), int(connection), key, int(version), kind == "request", bytes.fromhex(digits))
        for number, connection, version, kind, digits in rows
    ]


def conversation(client: str) -> list[Frame]:
    """All frames of a client, by their numbers."""
    return sorted(frame for path in files(client) for frame in read(path))


def write(client: str, title: str, frames: list[Frame]) -> None:
    """Replaces the files of a client."""
    directory = HERE / client
    directory.mkdir(exist_ok=True)
    for path in files(client):
        path.unlink()
    for key in sorted({frame.key for frame in frames}):
        lines = [f"# {title}: number, connection, version, kind, frame"]
        for frame in frames:
            if frame.key == key:
                kind = "request" if frame.is_request else "response"
                lines.append(f"{frame.number} {frame.connection} {frame.version} {kind} {frame.data.hex()}")
        (directory / f"{API_NAMES[key]}.txt").write_text("\n".join(lines) + "\n", encoding="ascii")


def ready_broker(directory: Path) -> BrokerProcess:
    """Starts a broker whose coordinators are loaded: a client's first question about them has one answer."""
    from ottla.wire.messages.find_coordinator import FindCoordinatorRequest

    broker = BrokerProcess(directory, SETTINGS).start()
    with WireClient(broker.port) as client:
        for kind in (0, 1):
            eventually(lambda kind=kind: client.ask(FindCoordinatorRequest(key="first", key_type=kind), 2).error_code == 0)
    return broker
