"""Clones that follow their source: what it writes meanwhile, deletes, and how they end or are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ottla.client
from ottla.base.types import TopicPartition
from ottla.client import Client, ErrorCode, KafkaError
from ottla.client.core.group_admin import Committed
from ottla.cloning import clone as clone_module
from ottla.cloning import following
from ottla.cloning.clone import Follow
from ottla.cloning.plan import CloneError
from ottla.testing.broker import Broker
from tests.cloning.conftest import MakeClone, ends, stored, write
from tests.cloning.test_clone import happens


def followed(steps: list[Callable[[], object]], directory: Path, topic: str, ends_of: Callable[[], int]) -> Follow:
    """Does each step once the copy has reached the source's end, and is over after the last one."""

    def is_over() -> bool:
        copied = sum(len(path.read_bytes()) for path in (directory / "clone.partial" / "data").glob(f"{topic}-0/*.log"))
        if copied and copied == seen[0] and ends_of() == seen[1]:
            if not steps:
                return True
            steps.pop(0)()
        seen[:] = [copied, ends_of()]
        return False

    seen = [0, 0]
    return Follow(is_over, lambda _: None)


def test_a_clone_follows_what_the_source_writes(source: Broker, client: Client, topic: str, clone: MakeClone, tmp_path: Path) -> None:
    """Records, a transaction and committed offsets of later are there, and the end is of when the following ended."""
    client.create_topic(topic)
    write(client, topic, 10)
    producer = client.producer(transactional_id=topic)

    def transact() -> None:
        producer.begin()
        producer.produce(topic, b"last", partition=0)
        producer.commit()
        producer.close()
        client.commit("billing-" + topic, {TopicPartition(topic, 0): Committed(17, 0, "late")})

    steps: list[Callable[[], object]] = [
        lambda: write(client, topic, 5, first=10),
        lambda: write(client, topic, 5, first=15, codec="zstd"),
        transact,
    ]
    cloned = clone(follow=followed(steps, tmp_path, topic, lambda: ends(client, topic)))
    assert steps == [] and cloned.logs[0].log_end_offset == 22
    assert stored(tmp_path / "clone", topic) == stored(source.data_dir, topic)
    assert [(one.offset, one.metadata) for one in cloned.plan.offsets if one.group == "billing-" + topic] == [(17, "late")]


def test_a_followed_source_that_deletes_old_records(client: Client, topic: str, clone: MakeClone, tmp_path: Path) -> None:
    """The copy deletes them too, whether it had them or not."""
    client.create_topic(topic)
    write(client, topic, 10)
    partition = TopicPartition(topic, 0)
    steps: list[Callable[[], object]] = [lambda: client.delete_records({partition: 7}), lambda: write(client, topic, 5, first=10)]
    cloned = clone(follow=followed(steps, tmp_path, topic, lambda: ends(client, topic)))
    assert (cloned.logs[0].log_start_offset, cloned.logs[0].log_end_offset, cloned.notes) == (7, 15, [])


def test_a_followed_source_that_is_ahead(source: Broker, client: Client, topic: str, clone: MakeClone, tmp_path: Path) -> None:
    """The plan ends before records that the first Fetch has too. They are fetched again, and not left out."""
    client.create_topic(topic)
    write(client, topic, 10)

    def planned(_: int) -> Callable[[int], None]:
        write(client, topic, 10, first=10)
        return lambda _: None

    clone(planned=planned, follow=followed([], tmp_path, topic, lambda: ends(client, topic)))
    assert stored(tmp_path / "clone", topic) == stored(source.data_dir, topic)


def test_ctrl_c_completes_a_followed_clone_that_was_killed(source: Broker, client: Client, topic: str, tmp_path: Path) -> None:
    """kill -9 while it follows; the same command goes on; its lag is in a file; Ctrl-C completes the clone."""
    client.create_topic(topic)
    write(client, topic, 10)
    words = ["clone", source.direct_server, "--topics", topic, "-d", str(tmp_path / "clone"), "--follow", "-o", "json"]
    command = [sys.executable, "-m", "ottla.cli.main", *words]
    state_file = tmp_path / "clone.partial" / "state.json"

    def has_copied(end: int) -> bool:
        if not state_file.exists():
            return False
        state = json.loads(state_file.read_text())
        return state["lag"] == 0 and [one["end"] for one in state["partitions"]] == [end]

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
        assert happens(lambda: has_copied(10))
        killed.send_signal(signal.SIGKILL)
    write(client, topic, 10, first=10)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert happens(lambda: has_copied(20))
        write(client, topic, 5, first=20)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate()
    assert process.returncode == 0, error
    found = json.loads(out)
    assert (found["continued"], found["partitions"][0]["end"]) == (True, 25)
    assert "following: 1 partition, 0 offsets behind the source" in error
    assert stored(tmp_path / "clone", topic) == stored(source.data_dir, topic)
    assert not (tmp_path / "clone.partial").exists()
    with ottla.client.connect(source.direct_server) as other:
        assert ends(other, topic) == 25


def test_a_followed_source_that_ends_before_the_copy(
    client: Client, topic: str, clone: MakeClone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is created again on a broker without topic ids, or an unclean election has cut the log."""
    client.create_topic(topic)
    write(client, topic, 10)

    def begin_again() -> None:
        client.delete_topic(topic)
        client.create_topic(topic)
        write(client, topic, 5)

    steps: list[Callable[[], object]] = [begin_again]
    monkeypatch.setattr(clone_module, "replaced_topic", lambda *_: None)
    with pytest.raises(CloneError, match=f"{topic}-0 of the source ends before offset 10, which was copied; remove the clone"):
        clone(follow=followed(steps, tmp_path, topic, lambda: ends(client, topic)))
    assert steps == []


def test_a_followed_topic_that_is_deleted(client: Client, topic: str, clone: MakeClone, tmp_path: Path) -> None:
    """The clone ends with a line and does not wait for the topic forever."""
    client.create_topic(topic)
    write(client, topic, 10)
    steps: list[Callable[[], object]] = [lambda: client.delete_topic(topic)]
    with pytest.raises(CloneError, match=f"{topic}.*the topic was deleted while it was cloned"):
        clone(follow=followed(steps, tmp_path, topic, lambda: 10 if not steps else ends(client, topic)))
    assert steps == []


def test_a_checkpoint_without_a_leader_is_repeated(
    client: Client, topic: str, clone: MakeClone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An election at the source ends no clone: the error is in the state, and later checks succeed."""
    client.create_topic(topic)
    write(client, topic, 10)
    errors: list[str | None] = []
    checks = 0

    def check(*_: object) -> str | None:
        nonlocal checks
        checks += 1
        if checks == 1:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "an election")
        return None

    monkeypatch.setattr(following, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(following, "STATE_SECONDS", 0.0)
    monkeypatch.setattr(clone_module, "replaced_topic", check)
    cloned = clone(follow=Follow(lambda: checks > 1 and bool(errors) and errors[-1] is None, lambda state: errors.append(state["error"])))
    assert any(error is not None and "an election" in error for error in errors)
    assert cloned.logs[0].log_end_offset == 10


def test_a_checkpoint_that_failed_is_repeated_before_the_next_minute(
    client: Client, topic: str, clone: MakeClone, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_topic(topic)
    write(client, topic, 10)
    errors: list[str | None] = []
    checks: list[int] = []

    def check(*_: object) -> str | None:
        checks.append(len(errors))
        if len(checks) == 1:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "an election")
        return None

    def is_over() -> bool:
        monkeypatch.setattr(following, "CHECKPOINT_SECONDS", 3_600.0)
        return any(errors) and errors[-1] is None

    monkeypatch.setattr(following, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(following, "STATE_SECONDS", 0.0)
    monkeypatch.setattr(clone_module, "replaced_topic", check)
    clone(follow=Follow(is_over, lambda state: errors.append(state["error"])))
    assert len(checks) == 3, "the failed one, its repetition, and one at the end of the clone"


def test_a_followed_source_that_restarts(tmp_path: Path) -> None:
    """The clone waits for the source, and goes on."""
    from ottla.cloning.bounds import Range
    from ottla.cloning.clone import CloneRequest, make_clone

    with Broker(data_dir=tmp_path / "source") as broker:
        broker.create_topic("orders")
        with ottla.client.connect(broker.direct_server) as client:
            write(client, "orders", 10)
            states: list[str | None] = []
            steps: list[Callable[[], object]] = [broker.pause, broker.resume, lambda: write(client, "orders", 5, first=10)]

            def is_over() -> bool:
                if len(steps) == 3 or (len(steps) == 2 and any(states)) or (len(steps) == 1 and states[-1] is None):
                    steps.pop(0)()
                return not steps and position[0] == 15

            position = [0]

            def report(state: dict[str, object]) -> None:
                states.append(state["error"])  # type: ignore[arg-type]
                position[0] = sum(one["end"] for one in state["partitions"])  # type: ignore[attr-defined]

            request = CloneRequest(
                target=tmp_path / "clone", topics=["orders"], groups=None, range=Range(), settings={}, change=None, description=""
            )  # fmt: skip
            with ottla.client.connect(broker.direct_server, timeout_s=0.5) as impatient:
                make_clone(impatient, request, lambda _: lambda _: None, Follow(is_over, report))
            assert any(states)
        assert stored(tmp_path / "clone", "orders") == stored(tmp_path / "source", "orders")
