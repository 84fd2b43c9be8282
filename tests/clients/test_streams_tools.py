"""Kafka's `kafka-streams-groups` and Ottla's print the same for the same command lines, about two groups of one broker that differ only in
their names.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.core.group_admin import commit_offsets
from tests.cli.groups.test_streams_group import Member
from tests.clients.broker_process import BrokerProcess
from tests.clients.java_program import Java
from tools.compare_cases import Case
from tools.compare_tools import Seen, normal, ordered, run_ours, run_theirs

TOOL = "kafka-streams-groups"
SETTINGS = ("group.streams.initial.rebalance.delay.ms=0", "group.streams.assignment.interval.ms=0", "offsets.topic.num.partitions=1")
PAUSE_SECONDS = 1
USAGE = "the JVM of all lines cannot end within Kafka's tool, which prints that"
ASSIGNOR = "Kafka 4.4 has a column for the assignor, 4.3 has none"
UNCOMMITTED = "ours also resets named partitions without a committed offset"
REFUSED = "a refusal is exit code 1; Kafka's tool exits 0"

WITH_MEMBERS = (
    Case("--describe --group GROUP"),
    Case("--describe --group GROUP --offsets --verbose"),
    Case("--describe --group GROUP --members"),
    Case("--describe --group GROUP --members --verbose"),
    Case("--describe --group GROUP --state"),
    Case("--describe --group GROUP --state --verbose", why=ASSIGNOR),
    Case("--describe --group GROUP --members --state", why=USAGE),
    Case("--describe --group GROUP --state Stable", why=USAGE),
    Case("--describe", why=USAGE),
    Case("--describe --group nope"),
    Case("--list --state wrong"),
    Case("--reset-offsets --group GROUP --to-earliest --all-input-topics --dry-run", exits=REFUSED),
    Case("--reset-offsets --group GROUP --to-earliest --all-input-topics", why=USAGE),
    Case("--delete --group GROUP --group nope", exits=REFUSED),
    Case("--delete --group GROUP --input-topic INPUT", why=USAGE),
    Case("--delete-offsets --group GROUP --input-topic INPUT", exits=REFUSED),
    Case("--delete-offsets --group GROUP", why=USAGE),
    Case("--delete-offsets --group GROUP --group nope --all-input-topics", why=USAGE),
    Case("--list --delete-all-internal-topics", why=USAGE),
    Case("--reset-offsets --group GROUP --to-earliest --all-input-topics --dry-run --delete-all-internal-topics", why=USAGE),
    Case("--list --delete-internal-topic GROUP-words-repartition", why=USAGE),
)
WITHOUT_MEMBERS = (
    Case("--list"),
    Case("--list --state"),
    Case("--list --state empty"),
    Case("--describe --group GROUP"),
    Case("--describe --group GROUP --members"),
    Case("--describe --group GROUP --state"),
    Case("--reset-offsets --group GROUP --to-earliest --all-input-topics --dry-run"),
    Case("--reset-offsets --group GROUP --to-latest --input-topic INPUT:0 --dry-run --export"),
    Case("--reset-offsets --group GROUP --shift-by -1 --all-input-topics --execute"),
    Case("--reset-offsets --group GROUP --to-latest --input-topic INPUT --dry-run", why=UNCOMMITTED),
    Case("--reset-offsets --group GROUP --to-offset 3 --input-topic INPUT:0 --execute --delete-internal-topic GROUP-words-repartition"),
    Case("--reset-offsets --group GROUP --to-current --all-input-topics --dry-run"),
    Case("--delete-offsets --group GROUP --input-topic INPUT:1"),
    Case("--delete-offsets --group GROUP --all-input-topics"),
    Case("--delete --group GROUP --group nope --delete-all-internal-topics", exits=REFUSED),
    Case("--list"),
)


class LivingMember(Member):
    """A member that sends heartbeats until it is stopped."""

    @contextmanager
    def alive(self) -> Iterator[None]:
        self.begin()
        is_over = threading.Event()

        def live() -> None:
            while not is_over.wait(PAUSE_SECONDS):
                self.beat()

        thread = threading.Thread(target=live)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            self.leave()


def about(cases: tuple[Case, ...], group: str) -> list[Case]:
    """Returns the command lines about one group."""
    return [case._replace(line=f"{TOOL} {case.line}".replace("GROUP", group).replace("INPUT", f"{group}-in")) for case in cases]


def walk(cluster: Cluster, group: str, run: Callable[[list[Case]], list[Seen]]) -> list[Seen]:
    """Runs all command lines about a group, first with a member and then without."""
    member = LivingMember(cluster, group, f"{group}-in", "-words-repartition", "-totals-changelog")
    with member.alive():
        seen = run(about(WITH_MEMBERS, group))
    commit_offsets(cluster, group, {TopicPartition(member.lines, 0): 4, TopicPartition(member.words, 0): 0})
    return [*seen, *run(about(WITHOUT_MEMBERS, group))]


@pytest.mark.timeout(900)  # the first run fetches Kafka's jars
def test_the_tools_print_the_same(tmp_path: Path, need_program: Callable[[str], str]) -> None:
    java, broker = Java(need_program), BrokerProcess(tmp_path / "broker", SETTINGS).start()
    try:
        with Cluster(broker.address, timeout_s=30) as cluster:
            theirs = walk(cluster, "app-t", lambda cases: run_theirs(java.run, cases, broker.address, tmp_path))
            ours = walk(cluster, "app-o", lambda cases: run_ours(cases, broker.address, tmp_path))
    finally:
        broker.stop()
    differences = []
    for case, their, our in zip(about((*WITH_MEMBERS, *WITHOUT_MEMBERS), "app-o"), theirs, ours, strict=True):
        expected, found = ordered(normal(their.stdout.replace("app-t", "app-o"), TOOL)), ordered(normal(our.stdout, TOOL))
        has_same_exit = (their.code == 0) == (our.code == 0)
        if (expected == found) is bool(case.why) or has_same_exit is bool(case.exits) or "Traceback" in our.stderr:
            differences.append(f"{case.line}\n--- Kafka ({their.code})\n{their.stdout}--- ours ({our.code})\n{our.stdout}{our.stderr}")
    assert not differences, "\n".join(differences)
