"""Six members with two kinds of client in one classic group, each in its own process, join, leave and are killed. Whenever the group is
stable, every partition has one owner, according to the broker and to the members, and a record sent to it arrives at one member, once.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.broker_process import ROOT, STOP_SECONDS, BrokerProcess, eventually
from tests.clients.conftest import SETTINGS
from tests.clients.group_view import look

PARTITIONS = 12
REST_SECONDS = 150
KINDS = itertools.cycle(["confluent", "kafka-python"])


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, (*SETTINGS, "group.min.session.timeout.ms=1000")).start()
    yield process
    process.stop()


class Member:
    def __init__(self, address: str, group: str, topic: str) -> None:
        self.kind = next(KINDS)
        self.owned: frozenset[int] = frozenset()
        self.got: list[str] = []
        command = [sys.executable, "-m", "tests.clients.group_member", self.kind, address, group, topic]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT, env=environment, start_new_session=True
        )
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            if "owns" in event:
                self.owned = frozenset(event["owns"])
            else:
                self.got.append(event["got"])

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        code = self.process.wait(STOP_SECONDS)
        self.thread.join(STOP_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


class SixMembers:
    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.members: list[Member] = []
        self.numbers = itertools.count()
        self.producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})

    def join(self, count: int) -> None:
        self.members += [Member(self.broker.address, "six", "shared") for _ in range(count)]

    def end(self, number: int, *members: Member) -> list[int]:
        for member in members:
            self.members.remove(member)
        return [member.end(number) for member in members]

    def of_kind(self, kind: str) -> Member:
        return next(member for member in self.members if member.kind == kind)

    def is_at_rest(self) -> bool:
        view = look(self.broker.port, "six")
        owned = sorted(sorted(partition for _, partition in spots) for spots in view.members.values())
        return view.state == "Stable" and owned == sorted(sorted(member.owned) for member in self.members)

    def rest(self) -> list[int]:
        """Waits until the group is stable, tests each partition, and returns how many partitions each member has."""
        eventually(self.is_at_rest, REST_SECONDS)
        owned = sorted(partition for member in self.members for partition in member.owned)
        assert owned == list(range(PARTITIONS)), "a partition has no owner, or two"
        before = [len(member.got) for member in self.members]
        sent = [str(next(self.numbers)) for _ in range(PARTITIONS)]
        for partition, value in enumerate(sent):
            self.producer.produce("shared", value, partition=partition)
        assert self.producer.flush(60) == 0
        eventually(lambda: sum(len(member.got) for member in self.members) >= sum(before) + PARTITIONS)
        for member, start in zip(self.members, before, strict=True):
            assert sorted(map(int, member.got[start:])) == sorted(int(sent[partition]) for partition in member.owned)
        return sorted(len(member.owned) for member in self.members)


@pytest.fixture
def group(own_broker: BrokerProcess) -> Iterator[SixMembers]:
    with AdminClient({"bootstrap.servers": own_broker.address}) as admin:
        admin.create_topics([NewTopic("shared", PARTITIONS, 1)])["shared"].result(60)
    group = SixMembers(own_broker)
    yield group
    for member in list(group.members):
        group.end(signal.SIGKILL, member)


def both_kinds(group: SixMembers) -> tuple[Member, Member]:
    return group.of_kind("confluent"), group.of_kind("kafka-python")


def test_joins_leaves_and_crashes(group: SixMembers) -> None:
    group.join(2)
    assert group.rest() == [6, 6]
    group.join(4)
    assert group.rest() == [2] * 6
    assert group.end(signal.SIGTERM, *both_kinds(group)) == [0, 0]
    assert group.rest() == [3] * 4
    assert group.end(signal.SIGKILL, group.of_kind("confluent")) == [-signal.SIGKILL]
    assert group.rest() == [4] * 3
    group.join(3)
    assert group.rest() == [2] * 6
    assert group.end(signal.SIGKILL, *both_kinds(group)) == [-signal.SIGKILL] * 2
    assert group.rest() == [3] * 4
    assert group.end(signal.SIGTERM, *both_kinds(group)) == [0, 0]
    assert group.rest() == [6, 6]
