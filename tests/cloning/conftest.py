"""One broker as the source for the whole folder, and clones of its topics in this process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla.client
from ottla.base.types import TopicPartition
from ottla.client import Client
from ottla.cloning.bounds import Range
from ottla.cloning.clone import Cloned, CloneRequest, Follow, make_clone
from ottla.testing.broker import Broker

SETTINGS = {"log.cleaner.backoff.ms": 50, "log.cleaner.min.cleanable.ratio": 0.01, "log.segment.delete.delay.ms": 0}

MakeClone = Callable[..., Cloned]


@pytest.fixture(scope="session")
def source() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session")
def client(source: Broker) -> Iterator[Client]:
    with ottla.client.connect(source.direct_server) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def clone(client: Client, topic: str, tmp_path: Path) -> MakeClone:
    """`clone(size=1000)` clones the test's topic to `tmp_path/"clone"`."""

    def run(
        *,
        planned: Callable[[int], Any] = lambda _: lambda _: None,
        change: Any = None,
        follow: Follow | None = None,
        groups: Any = None,
        description: str = "",
        **chosen: Any,
    ) -> Cloned:
        request = CloneRequest(
            target=tmp_path / "clone", topics=[topic], groups=groups, range=Range(**chosen), settings={}, change=change,
            description=description,
        )  # fmt: skip
        return make_clone(client, request, planned, follow)

    return run


def stored(directory: Path, topic: str, partition: int = 0) -> bytes:
    """The bytes of a partition's segments."""
    return b"".join(path.read_bytes() for path in sorted((directory / f"{topic}-{partition}").glob("*.log")))


def write(client: Client, topic: str, count: int, *, first: int = 0, codec: str = "none", **options: Any) -> None:
    """Writes records with the values `first`, `first + 1` and so on, five in a batch."""
    producer = client.producer(codec=codec)
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, b"key-%d" % (number % 7), headers=(("number", b"%d" % number),), partition=0, **options)
        if number % 5 == 4:
            producer.flush()
    producer.flush()
    producer.close()


def ends(client: Client, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    return client.list_offsets({partition: ottla.client.LATEST}, isolation="read_uncommitted")[partition].offset
