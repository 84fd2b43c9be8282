"""Measures operations that users wait for: a restart after a crash, a rebalance, a command. Each operation is measured alone, on an Ottla
broker.

Every function returns rows for the first table of `make bench`: (what, unit, figure).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing

from ottla.client.addresses import parse_address
from ottla.client.blocking.connection import BlockingConnection
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tools.bench.brokers import Broker, start_ottla
from tools.bench.loads import new_topic, send
from tools.bench.report import Row

SESSION_TIMEOUT_MS = 60_000
HEARTBEAT_S = 0.1
COMMAND = [sys.executable, "-m", "ottla.cli.main"]


def restart_after_kill(scale: float) -> list[Row]:
    """Writes 1 GB into 100 partitions, kills the broker with -9, and measures the time from the start of the new process to READY."""
    broker = start_ottla()
    folder = broker.directory
    send(broker, new_topic(broker, 100), int(1_000_000 * scale), 1000, 100, {})
    broker.process.kill()
    broker.process.wait()
    again = start_ottla(directory=folder)
    again.stop()
    return [(f"restart after kill -9 with {scale:g} GB in 100 partitions", "ms", again.start_ms)]


class Member(threading.Thread):
    """A member of a classic group that only joins, syncs and sends heartbeats. `generation` is the generation of its last assignment."""

    def __init__(self, broker: Broker, group: str) -> None:
        super().__init__(daemon=True)
        self.connection = BlockingConnection(parse_address(broker.address)).open()
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.is_stopping = False

    def run(self) -> None:
        while not self.is_stopping:
            if self.generation < 0:
                self.generation = self.take_share()
                continue
            time.sleep(HEARTBEAT_S)
            beat = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
            if self.connection.request(beat).error_code:
                self.generation = -1
        self.connection.close()

    def take_share(self) -> int:
        """Joins and syncs. Returns the generation of the assignment, or -1 if the group has changed meanwhile."""
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"\0\0" + bytes(8))
        joined = self.connection.request(JoinGroupRequest(
            group_id=self.group, session_timeout_ms=SESSION_TIMEOUT_MS, rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=self.member_id, protocol_type="consumer", protocols=[protocol],
        ))  # fmt: skip
        self.member_id = joined.member_id
        if joined.error_code:
            return -1
        shares = [SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"share") for member in joined.members]
        synced = self.connection.request(SyncGroupRequest(
            group_id=self.group, generation_id=joined.generation_id, member_id=self.member_id, protocol_type="consumer",
            protocol_name="range", assignments=shares,
        ))  # fmt: skip
        return -1 if synced.error_code else int(joined.generation_id)


def rebalance(broker: Broker, count: int = 100) -> list[Row]:
    """Measures the time until all members of a classic group have an assignment of the same generation: first `count` new members, then one
    more.
    """
    group = f"bench-{time.time_ns()}"
    with closing(BlockingConnection(parse_address(broker.address)).open()) as connection:
        while connection.request(FindCoordinatorRequest(coordinator_keys=[group])).coordinators[0].error_code:
            time.sleep(0.01)
    members = [Member(broker, group) for _ in range(count + 1)]
    first = milliseconds_until_stable(members[:count], members[:count])
    again = milliseconds_until_stable(members[count:], members)
    for member in members:
        member.is_stopping = True
    for member in members:
        member.join()
    beats = f"(a heartbeat each {HEARTBEAT_S * 1000:.0f} ms)"
    return [
        (f"classic group of {count} members that join at once {beats}", "ms", first),
        (f"one more joins a group of {count} {beats}", "ms", again),
    ]


def milliseconds_until_stable(new: list[Member], members: list[Member]) -> float:
    started = time.perf_counter()
    before = max(member.generation for member in members)
    for member in new:
        member.start()
    while len(generations := {member.generation for member in members}) > 1 or min(generations) <= before:
        time.sleep(0.001)
    return (time.perf_counter() - started) * 1000


def command_throughput(broker: Broker, scale: float) -> list[Row]:
    """Measures `consume -e -q` of 1 GB of 1 KB records to /dev/null, and `produce` of a file of lines of 100 bytes."""
    topic, records = new_topic(broker), int(1_000_000 * scale)
    send(broker, topic, records, 1000, 1, {})
    reading = seconds_of(["consume", "-b", broker.address, topic, "--from-beginning", "-e", "-q"])
    lines, topic = int(2_000_000 * scale), new_topic(broker)
    with tempfile.NamedTemporaryFile("wb") as file:
        file.write((b"x" * 99 + b"\n") * lines)
        file.flush()
        writing = seconds_of(["produce", "-b", broker.address, topic, "-q", "-l", file.name])
    return [
        ("ottla consume -e -q, 1 KB records", "MB/s", records / 1000 / reading),
        ("ottla produce from a file, 100 B lines", "records/s", lines / writing),
    ]


def seconds_of(options: list[str]) -> float:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    subprocess.run([*COMMAND, *options], check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - started
