"""`group reset-offsets` on a broker: scope x scenario x mode, offsets before and after; the table is in tools/reset_table.py."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.producer import Producer
from ottla.client.core import group_admin
from ottla.client.core.admin import create_topic, delete_records
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla, Result
from tools.reset_table import FILE, MODES, PARTITIONS, ROWS, SCOPES, STARTED_MS, Row

_numbers = itertools.count()
WHERE = [TopicPartition(topic, int(number)) for topic, _, number in (partition.name.rpartition("-") for partition in PARTITIONS)]


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    """A broker with the topics of the table."""
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def cluster(own_broker: Broker) -> Iterator[Cluster]:
    """The partitions of the table, filled, with the start of the first moved by deleting records."""
    with Cluster(own_broker.bootstrap_server, timeout_s=10) as cluster:
        create_topic(cluster, "orders", partitions=3, configs={"retention.ms": "-1"})
        create_topic(cluster, "bills", partitions=1, configs={"retention.ms": "-1"})
        with Producer(cluster) as producer:
            for where, partition in zip(WHERE, PARTITIONS, strict=True):
                for number in range(partition.end):
                    producer.produce(where.topic, b"x", None, partition=where.partition, timestamp=STARTED_MS + number * 1000)
            producer.flush()
        delete_records(cluster, {where: partition.start for where, partition in zip(WHERE, PARTITIONS, strict=True) if partition.start})
        others = {where: partition.other for where, partition in zip(WHERE, PARTITIONS, strict=True) if partition.other is not None}
        group_admin.commit_offsets(cluster, "OTHER", others)
        yield cluster


@pytest.fixture
def run(offline: Ottla, own_broker: Broker, tmp_path: Path) -> Ottla:
    """`run("--group g --to-latest ...")`; FILE is the file of the table."""
    file = tmp_path / "offsets.csv"
    file.write_text("".join(f"{topic},{number},{offset}\n" for topic, number, offset in FILE))

    def reset(line: str, *words: str) -> Result:
        split = [word.replace("FILE", str(file)) for word in line.split()]
        return offline("group", "reset-offsets", *split, *words, "-b", own_broker.bootstrap_server)

    return reset


def new_group(cluster: Cluster, has_commits: bool) -> str:
    """A group of its own for each case."""
    name = f"g{next(_numbers)}"
    if has_commits:
        committed = {where: partition.committed for where, partition in zip(WHERE, PARTITIONS, strict=True)}
        group_admin.commit_offsets(cluster, name, {where: offset for where, offset in committed.items() if offset is not None})
    return name


def committed(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    return {where: found.offset for where, found in group_admin.committed_offsets(cluster, group).items()}


def wanted(row: Row, scope: str, has_commits: bool) -> tuple[dict[TopicPartition, int] | None, set[TopicPartition]]:
    """The expected result of the table: the new offsets, or None for a refusal; and the partitions with a warning."""
    reached = list(SCOPES.get(scope, range(len(PARTITIONS))))
    offsets = row.committed if has_commits else row.new
    if scope == "--all-topics" and not has_commits:
        reached = []
    if row.scenario.startswith("--to-group"):
        reached = [number for number in range(len(PARTITIONS)) if scope == "--all-topics" or number in reached]
        reached = [number for number in reached if offsets[number] is not None]
    plan = {WHERE[number]: offsets[number] for number in reached}
    if any(offset is None for offset in plan.values()):
        return None, set()
    return {where: offset for where, offset in plan.items() if offset is not None}, {WHERE[n] for n in row.warns if n in reached}


def shown(result: Result, mode: str, group: str) -> dict[TopicPartition, int]:
    """The plan as it was printed, table or CSV."""
    if "--export" in mode:
        return {TopicPartition(topic, int(number)): int(new) for topic, number, new in csv.reader(io.StringIO(result.out))}
    rows = [line.split() for line in result.out.splitlines()[1:]]
    assert all(row[0] == group for row in rows)
    return {TopicPartition(row[1], int(row[2])): int(row[3]) for row in rows}


def lines() -> list[tuple[str, Row]]:
    """Each scope with each scenario; the file brings its own scope."""
    return [(scope, row) for row in ROWS for scope in ([""] if "FILE" in row.scenario else SCOPES)]


@pytest.mark.parametrize("has_commits", [True, False], ids=["commits", "none"])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode or "no-mode")
@pytest.mark.parametrize(("scope", "row"), lines(), ids=lambda value: value if isinstance(value, str) else value.scenario)
def test_the_table(cluster: Cluster, run: Ottla, scope: str, row: Row, mode: str, has_commits: bool) -> None:
    group = new_group(cluster, has_commits)
    before = committed(cluster, group)
    result = run(f"--group {group} {scope} {row.scenario} {mode}")
    new, warned = wanted(row, scope, has_commits)
    if new is None:
        assert result.code == 1 and "has no committed offset to shift" in result.err
        assert result.out == "" and committed(cluster, group) == before
        return
    assert result.code == 0, result.err
    assert shown(result, mode, group) == new
    assert {TopicPartition(t, int(n)) for t, n in re.findall(r"warning: (\w+)-(\d+):", result.err)} == warned
    assert ("nothing was changed; add --execute to do it" in result.err) == (mode in ("", "--export"))
    assert committed(cluster, group) == ({**before, **new} if "--execute" in mode else before)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_active_group_is_refused_by_its_state(cluster: Cluster, own_broker: Broker, run: Ottla, offline: Ottla, protocol: str) -> None:
    group = new_group(cluster, has_commits=True)
    before = committed(cluster, group)
    if protocol == "classic":
        with Cluster(own_broker.bootstrap_server, timeout_s=10) as own, Consumer(own, group_id=group, is_auto_commit=False) as member:
            member.subscribe(["orders"])
            while not member.positions:
                member.poll(0.1)
            check_refusal(cluster, run, offline, own_broker, group, before)
    else:
        from confluent_kafka import Consumer as Confluent

        settings = {"bootstrap.servers": own_broker.bootstrap_server, "group.id": group, "group.protocol": "consumer"}
        newer = Confluent({**settings, "enable.auto.commit": False})
        newer.subscribe(["orders"])
        try:
            while not newer.assignment():
                newer.poll(0.1)
            check_refusal(cluster, run, offline, own_broker, group, before)
        finally:
            newer.close()
    assert run(f"--group {group} --topic orders --to-latest --execute").code == 0, "as soon as its member has left, it is reset"


def check_refusal(cluster: Cluster, run: Ottla, offline: Ottla, own_broker: Broker, group: str, before: dict[TopicPartition, int]) -> None:
    for mode in ("--execute", "--dry-run"):
        result = run(f"--group {group} --topic orders --to-latest {mode} -o json")
        error = json.loads(result.err)["error"]
        assert result.code == 1 and error["name"] == "NON_EMPTY_GROUP" and "in state Stable" in error["message"]
    words = ["--reset-offsets", "--group", group, "--topic", "orders", "--to-latest", "--execute"]
    shim = offline("kafka-consumer-groups", *words, "--bootstrap-server", own_broker.bootstrap_server)
    assert shim.code == 1 and f"if the group '{group}' is inactive, but the current state is Stable." in shim.out
    assert committed(cluster, group) == before


def test_one_active_group_among_several_stops_them_all(cluster: Cluster, own_broker: Broker, run: Ottla) -> None:
    idle, busy = new_group(cluster, has_commits=True), new_group(cluster, has_commits=True)
    before = committed(cluster, idle)
    with Cluster(own_broker.bootstrap_server, timeout_s=10) as own, Consumer(own, group_id=busy, is_auto_commit=False) as member:
        member.subscribe(["orders"])
        while not member.positions:
            member.poll(0.1)
        assert run(f"--group {idle} --group {busy} --topic orders --to-earliest --execute").code == 1
    assert committed(cluster, idle) == before


@pytest.mark.parametrize("count", [1, 2])
def test_export_feeds_from_file(cluster: Cluster, run: Ottla, tmp_path: Path, count: int) -> None:
    groups = [new_group(cluster, has_commits=True) for _ in range(count)]
    named = " ".join(f"--group {group}" for group in groups)
    before = [committed(cluster, group) for group in groups]
    file = tmp_path / "export.csv"
    file.write_text(run(f"{named} --all-topics --to-current --export").out)
    assert run(f"{named} --all-topics --to-earliest --execute").code == 0
    assert [committed(cluster, group) for group in groups] != before
    result = run(f"{named} --execute --from-file", str(file))
    assert result.code == 0 and [committed(cluster, group) for group in groups] == before


ODD_NAMES = ['a,b"c', "line one\nline two\u2028three", " blanks ", '"quoted"', "plain"]


@pytest.mark.parametrize("names", [ODD_NAMES, ODD_NAMES[:1]], ids=["many", "one"])
@pytest.mark.parametrize("command", [("group", "reset-offsets"), ("kafka-consumer-groups", "--reset-offsets")], ids=lambda words: words[0])
def test_groups_of_any_name_are_exported_and_imported(
    cluster: Cluster, own_broker: Broker, offline: Ottla, tmp_path: Path, command: tuple[str, ...], names: list[str]
) -> None:
    connected = "--bootstrap-server", own_broker.bootstrap_server
    for offset, name in enumerate(names, 4):
        group_admin.commit_offsets(cluster, name, {WHERE[0]: offset})
    named = [word for name in names for word in ("--group", name)]
    exported = offline(*command, *named, "--all-topics", "--to-current", "--export", *connected)
    assert exported.code == 0, exported
    file = tmp_path / "export.csv"
    file.write_text(exported.out, encoding="utf-8", newline="")
    assert offline(*command, *named, "--topic", "orders:0", "--to-earliest", "--execute", *connected).code == 0
    assert [committed(cluster, name)[WHERE[0]] for name in names] == [3] * len(names)
    imported = offline(*command, *named, "--from-file", file, "--execute", *connected)
    assert imported.code == 0, imported
    assert [committed(cluster, name)[WHERE[0]] for name in names] == [*range(4, len(names) + 4)]


@pytest.mark.parametrize(
    ("text", "groups", "message"),
    [
        ("orders,0,1\norders,1\n", "--group a", "line 2: write topic,partition,offset or group,topic,partition,offset, not 'orders,1'"),
        ("orders,0,1\n\norders,x,1\n", "--group a", "line 3: partition and offset must be numbers"),
        ("orders,0,-1\n", "--group a", "line 1: partition and offset must be numbers"),
        ("orders,0,1\na,orders,0,1\n", "--group a", "line 2: write"),
        ("orders,0,1\n", "--group a --group b", "line 1: with several groups each line must begin with the group"),
        ("c,orders,0,1\n", "--group a", "names the group 'c', which is not among a"),
        ("", "--group a", "names no partition"),
        ("\xff\n", "--group a", "it is not a text file"),
        (None, "--group a", "no such file or directory"),
    ],
)
def test_a_bad_file_is_named_by_line(cluster: Cluster, run: Ottla, tmp_path: Path, text: str | None, groups: str, message: str) -> None:
    file = tmp_path / "bad.csv"
    if text is not None:
        file.write_bytes(text.encode("latin-1"))
    result = run(f"{groups} --execute --from-file", str(file))
    assert result.code == 2 and message in result.err and result.err.count("\n") == 1
    assert committed(cluster, "a") == {}


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("--group a --topic orders", 2, "give a target"),
        ("--group a --topic orders --to-latest --to-earliest", 2, "--to-earliest and --to-latest exclude each other"),
        ("--group a --topic orders --to-latest --dry-run --execute", 2, "--dry-run and --execute exclude each other"),
        ("--group a --to-latest", 2, "give topics"),
        ("--group a --all-topics --topic orders --to-latest", 2, "either --topic or --all-topics"),
        ("--group a --topic orders --from-file FILE", 2, "the file names the partitions"),
        ("--topic orders --to-latest", 2, "name groups, or give --all-groups"),
        ("--group a --all-groups --topic orders --to-latest", 2, "either groups or --all-groups"),
        ("--group a --topic orders:x --to-latest", 2, "is not TOPIC:PARTITION"),
        ("--group a --topic orders:7 --to-latest", 1, "topic 'orders' has 3 partitions, so no partition 7"),
        ("--group a --topic ordrs --to-latest --execute", 1, "topic 'ordrs' not found; did you mean 'orders'?"),
        ("--group a --topic orders --to-datetime yesterday", 2, "is not a date and time"),
        ("--group a --topic orders --by-duration 1h", 2, "is not a duration"),
        ("--group a --topic orders --to-offset x", 2, "invalid int value"),
    ],
)
def test_wrong_usage_changes_nothing(cluster: Cluster, run: Ottla, line: str, code: int, message: str) -> None:
    result = run(line)
    assert result.code == code and message in result.err and result.err.count("\n") == 1, result.err
    assert committed(cluster, "a") == {}


def test_a_partition_that_is_gone_is_not_reset(cluster: Cluster, run: Ottla) -> None:
    group = new_group(cluster, has_commits=True)
    before = committed(cluster, group)
    gone = run(f"--group {group} --topic orders:0,9 --to-latest --execute")
    assert gone.code == 1 and committed(cluster, group) == before


def test_json_has_old_new_and_distance(cluster: Cluster, run: Ottla) -> None:
    group = new_group(cluster, has_commits=True)
    found = run(f"--group {group} --topic bills --to-latest --execute -o json").json()
    assert found == {
        "offsets": [{"group": group, "topic": "bills", "partition": 0, "new_offset": 4, "old_offset": 1, "distance": 3, "error": None}],
        "executed": True,
        "warnings": [],
    }


def test_a_group_without_commits_has_nothing_to_take_over(ottla: Ottla, topic: str) -> None:
    refused = ottla("group", "reset-offsets", "--group", "g", "--topic", topic, "--to-group", "missing", "--execute", "-o", "json")
    assert (refused.code, json.loads(refused.err)["error"]["name"], refused.err.count("\n")) == (1, "GROUP_ID_NOT_FOUND", 1)


def test_offset_0_is_a_target(ottla: Ottla, topic: str) -> None:
    """`--to-offset 0` is common, and 0 must not count as a missing option."""
    scope = ("group", "reset-offsets", "--group", f"g-{topic}", "--topic", topic)
    for scenario in (("--to-offset", "0"), ("--shift-by", "0"), ("--to-offset=0",)):
        done = ottla(*scope, *scenario, "--execute", "-o", "json")
        assert done.code == 0, done
        assert '"new_offset": 0' in done.out
    shim = ottla("kafka-consumer-groups", "--reset-offsets", "--group", f"g-{topic}", "--topic", topic, "--to-offset", "0", "--execute")
    assert (shim.code, shim.out.split()[-1]) == (0, "0")
    assert ottla(*scope, "--to-offset", "0", "--to-latest").code == 2
