"""Kafka's own command-line tools and ours on the same lines: what each prints, and whether it is the same.

`python -m tools.compare_tools` starts a broker for each side, so that both begin with nothing, gives every line of `CASES` to Apache
Kafka's tools (one JVM, `tests/clients/java`) and to ours, and prints a table: tool, cases, equal, differs and why. `--kafka` does it on a
real Apache Kafka, started twice. Names of hosts, times and ids are replaced before comparing; lines in another order count as equal,
because Kafka's come out of hash tables. Only stdout is compared, and whether the exit code was 0.

A case that is known to differ says why in `why`; tests/clients/test_apache_tools.py fails when an undeclared one differs, and when a
declared one does not.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.cli.main import main as ottla
from ottla.cli.shims import TOOLS
from ottla.wire.compression import CODEC_GZIP
from ottla.wire.records import CONTROL_COMMIT, Record, encode_batch, encode_control_batch


class Case(NamedTuple):
    """One line of a shell: `tool arguments`; FILES stands for a directory that both sides have."""

    line: str
    stdin: str = ""
    why: str = ""
    """Why stdout differs."""
    exits: str = ""
    """Why the exit code differs."""

    @property
    def tool(self) -> str:
        return self.line.split()[0]


class Seen(NamedTuple):
    """What a tool printed, and its exit code."""

    code: int
    stdout: str
    stderr: str


JAVA_CLASSES = {name: tool.classes[-1] for name, tool in TOOLS.items() if tool.classes}
"""The newest name of each class."""
JAVA_CLASSES["kafka-configs"] = "kafka.admin.ConfigCommand"

_EXIT_RESET = "a refusal is exit code 1; Kafka's tool exits 0"
_OLD_NAME = "that an option has an old name is not said on stdout"
_EPOCH = "Kafka's client raises the producer's epoch with each transaction (KIP-890), our client keeps it"
_WARNING = "that a partition has no record at that time is told on stderr"

SEGMENT = "00000000000000000000.log"

CASES: tuple[Case, ...] = (
    Case("kafka-topics --create --topic quickstart-events"),
    Case("kafka-topics --create --topic orders --partitions 3 --replication-factor 1 --config retention.ms=1000000"),
    Case("kafka-topics --create --topic orders"),
    Case("kafka-topics --create --topic orders --if-not-exists"),
    Case("kafka-topics --create --topic my.topic_x", why="the warning about '.' and '_' stands on stderr"),
    Case("kafka-topics --create --topic bad!name"),
    Case("kafka-topics --create --topic rf2 --replication-factor 2"),
    Case("kafka-topics --create --topic bad --config nope=1"),
    Case("kafka-topics --create --topic bad --partitions 0"),
    Case("kafka-topics --create --topic assigned --replica-assignment NODE,NODE"),
    Case("kafka-topics --list"),
    Case("kafka-topics --list --exclude-internal"),
    Case("kafka-topics --list --topic ord.*"),
    Case("kafka-topics --describe"),
    Case("kafka-topics --describe --topic orders"),
    Case("kafka-topics --describe --topic nope"),
    Case("kafka-topics --describe --topic nope --if-exists"),
    Case("kafka-topics --describe --topics-with-overrides"),
    Case("kafka-topics --describe --under-replicated-partitions"),
    Case("kafka-topics --describe --unavailable-partitions"),
    Case("kafka-topics --describe --at-min-isr-partitions"),
    Case("kafka-topics --describe --under-min-isr-partitions"),
    Case("kafka-topics --describe --topic ord.*,quick.*"),
    Case("kafka-topics --alter --topic orders --partitions 4"),
    Case("kafka-topics --alter --topic orders --partitions 2"),
    Case("kafka-topics --alter --topic nope --partitions 2"),
    Case("kafka-topics --delete --topic assigned"),
    Case("kafka-topics --delete --topic nope"),
    Case("kafka-topics --delete --topic nope --if-exists"),
    Case("kafka-topics --list --describe"),
    Case("kafka-topics --create"),
    Case("kafka-topics --nosuch"),
    Case("kafka-topics --describe --topic orders --topic quickstart-events", why="wrong usage is told on stderr only"),
    Case("kafka-topics --create --topic x --partitions abc", why="wrong usage is told on stderr only"),
    Case("kafka-console-producer --topic quickstart-events", "This is my first event\nThis is my second event\n"),
    Case(
        "kafka-console-producer --topic orders --reader-property parse.key=true --reader-property key.separator=:",
        "k1:v1\nk2:v2\nk3:v3\n",
    ),
    Case(
        "kafka-console-producer --topic orders --property parse.key=true --property key.separator=:",
        "k1:v1\nbad\nk3:v3\n",
        why=_OLD_NAME,
    ),
    Case(
        "kafka-console-producer --topic orders --reader-property parse.headers=true --reader-property parse.key=true",
        "h1:1,h2:2\tk\tv\n",
    ),
    Case("kafka-console-producer --topic quickstart-events --compression-codec --sync", "zipped\n"),
    Case("kafka-console-producer --topic quickstart-events --compression-codec lz4 --request-required-acks 1", "squeezed\n"),
    Case("kafka-console-producer --topic quickstart-events --command-property enable.idempotence=false", "plain\n"),
    Case("kafka-topics --create --topic nulls --partitions 1"),
    Case(
        "kafka-console-producer --topic nulls --reader-property parse.key=true --reader-property null.marker=NULL"
        " --reader-property key.separator=:",
        "k4:NULL\nNULL:v5\n",
    ),
    Case(
        "kafka-console-consumer --topic nulls --partition 0 --offset earliest --max-messages 2 --timeout-ms 9000"
        " --formatter-property print.key=true --formatter-property null.literal=<nothing>"
    ),
    Case("kafka-console-consumer --topic quickstart-events --from-beginning --max-messages 5 --timeout-ms 9000 --group g0"),
    Case(
        "kafka-console-consumer --topic quickstart-events --partition 0 --offset 1 --max-messages 2 --timeout-ms 9000"
        " --formatter-property print.key=true --formatter-property print.timestamp=true --formatter-property print.offset=true"
        " --formatter-property print.partition=true --formatter-property print.headers=true"
    ),
    Case(
        "kafka-console-consumer --topic quickstart-events --partition 0 --offset earliest --max-messages 1 --timeout-ms 9000"
        " --formatter-property print.epoch=true",
        why="Kafka's tool loses the leader epoch on the way to print.epoch and always prints NOT_PRESENT",
    ),
    Case(
        "kafka-console-consumer --topic orders --from-beginning --max-messages 5 --timeout-ms 9000 --formatter-property print.key=true"
        " --formatter-property print.headers=true --formatter-property key.separator=; --formatter-property null.literal=nothing --group g1"
    ),
    Case("kafka-console-consumer --include ord.* --from-beginning --max-messages 3 --timeout-ms 9000 --group g2"),
    Case("kafka-console-consumer --topic quickstart-events --partition 0 --offset latest --timeout-ms 300"),
    Case("kafka-console-consumer --topic quickstart-events --partition 0 --offset earliest --max-messages 1 --timeout-ms 9000"),
    Case(
        "kafka-console-consumer --topic quickstart-events --partition 0 --offset earliest --max-messages 1 --timeout-ms 9000"
        " --isolation-level read_committed --formatter-property print.value=false --formatter-property print.offset=true"
    ),
    Case(
        "kafka-console-consumer --topic orders --partition 0 --offset earliest --max-messages 1 --timeout-ms 9000"
        " --property print.key=true --property key.separator=-",
        why=_OLD_NAME,
    ),
    Case(
        "kafka-console-consumer --topic orders --partition 0 --offset earliest --max-messages 1 --timeout-ms 9000"
        " --consumer-property isolation.level=read_committed",
        why=_OLD_NAME,
    ),
    Case(
        "kafka-console-consumer --topic orders --partition 0 --offset earliest --max-messages 1 --timeout-ms 9000"
        " --formatter org.apache.kafka.tools.consumer.NoOpMessageFormatter"
    ),
    Case("kafka-console-consumer --timeout-ms 500"),
    Case("kafka-consumer-groups --list"),
    Case("kafka-consumer-groups --list --state"),
    Case("kafka-consumer-groups --list --type"),
    Case("kafka-consumer-groups --list --state --type"),
    Case("kafka-consumer-groups --list --state Stable"),
    Case("kafka-consumer-groups --list --state Nonsense"),
    Case("kafka-consumer-groups --describe --group g1"),
    Case("kafka-consumer-groups --describe --group g1 --members"),
    Case("kafka-consumer-groups --describe --group g1 --members --verbose"),
    Case("kafka-consumer-groups --describe --group g1 --state"),
    Case("kafka-consumer-groups --describe --group g1 --state --verbose"),
    Case("kafka-consumer-groups --describe --group g1 --group g2"),
    Case("kafka-consumer-groups --describe --group nope", exits=_EXIT_RESET),
    Case("kafka-consumer-groups --describe --all-groups --state"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --topic orders --to-earliest"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --topic orders --to-earliest --export --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --topic orders --to-earliest --execute"),
    Case("kafka-consumer-groups --describe --group g1 --verbose"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --all-topics --shift-by 1 --execute"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --all-topics --shift-by -9 --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --all-topics --to-offset 100 --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --topic orders:0,1 --to-datetime 2020-01-01T00:00:00.000 --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --topic orders:0,1 --to-datetime 2999-01-01T00:00:00.0 --dry-run", why=_WARNING),
    Case("kafka-consumer-groups --reset-offsets --group g1 --topic orders --by-duration P1D --dry-run", why=_WARNING),
    Case("kafka-consumer-groups --reset-offsets --group g1 --topic orders:2 --topic quickstart-events --to-latest --execute"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --from-file FILES/reset.csv --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --group g2 --from-file FILES/reset2.csv --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --to-earliest --dry-run", why="wrong usage is told on stderr only"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --all-topics --dry-run", why="wrong usage is told on stderr only"),
    Case("kafka-consumer-groups --reset-offsets --group g1 --all-topics --to-earliest --to-latest --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group new --topic orders --shift-by 1 --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group new --topic orders --to-current --dry-run"),
    Case("kafka-consumer-groups --reset-offsets --group new --topic orders:9 --to-current --dry-run", exits=_EXIT_RESET),
    Case("kafka-consumer-groups --reset-offsets --all-groups --topic orders --to-latest --export --dry-run"),
    Case("kafka-consumer-groups --delete-offsets --group g1 --topic orders:0"),
    Case("kafka-consumer-groups --delete-offsets --group g1 --topic orders"),
    Case("kafka-consumer-groups --delete-offsets --group nope --topic orders", exits=_EXIT_RESET),
    Case("kafka-groups --list"),
    Case("kafka-groups --list --consumer"),
    Case("kafka-groups --list --group-type classic"),
    Case("kafka-groups --list --share"),
    Case("kafka-consumer-groups --delete --group g1"),
    Case("kafka-consumer-groups --delete --group g2 --group nope", exits=_EXIT_RESET),
    Case("kafka-consumer-groups --delete --group nope", exits=_EXIT_RESET),
    Case("kafka-console-consumer --topic quickstart-events --from-beginning --max-messages 1 --timeout-ms 9000"),
    Case("kafka-groups --list", why="Kafka's console consumer leaves a group behind even without --group, ours does not"),
    Case("kafka-delete-records --offset-json-file FILES/delete.json", exits=_EXIT_RESET),
    Case("kafka-delete-records --offset-json-file FILES/none.json"),
    Case("kafka-get-offsets --topic orders"),
    Case("kafka-get-offsets --topic orders --time -2"),
    Case("kafka-get-offsets --topic orders --time earliest"),
    Case("kafka-get-offsets --topic-partitions orders:0-2,quick.*"),
    Case("kafka-get-offsets --time latest --exclude-internal-topics"),
    Case("kafka-get-offsets --topic nope"),
    Case("kafka-get-offsets --topic orders --time 99999999999999"),
    Case("kafka-get-offsets --topic orders --partitions 0,2"),
    Case("kafka-get-offsets --topic quickstart-events --time max-timestamp"),
    Case("kafka-configs --describe --entity-type topics --entity-name orders"),
    Case("kafka-configs --describe --topic orders"),
    Case("kafka-configs --alter --topic orders --add-config retention.ms=5000000,cleanup.policy=[compact,delete]"),
    Case("kafka-configs --describe --entity-type topics --entity-name orders"),
    Case("kafka-configs --alter --entity-type topics --entity-name orders --delete-config retention.ms"),
    Case("kafka-configs --alter --entity-type topics --entity-name orders --add-config nope=5"),
    Case("kafka-configs --describe --entity-type topics"),
    Case("kafka-configs --describe --entity-type brokers --entity-name NODE"),
    Case("kafka-configs --describe --entity-type brokers --entity-default"),
    Case("kafka-configs --alter --entity-type brokers --entity-name NODE --add-config log.cleaner.threads=2"),
    Case("kafka-configs --describe"),
    Case("kafka-configs --alter --topic orders"),
    Case("kafka-log-dirs --describe --topic-list orders"),
    Case("kafka-log-dirs --describe --broker-list NODE --topic-list orders,nulls"),
    Case("kafka-log-dirs --describe --broker-list 77"),
    Case("kafka-producer-perf-test --topic paid --num-records 10 --record-size 10 --throughput -1 --transactional-id pay"),
    Case(
        "kafka-console-consumer --topic paid --partition 0 --offset earliest --isolation-level read_committed --timeout-ms 500"
        " --formatter-property print.value=false --formatter-property print.offset=true"
    ),
    Case("kafka-transactions describe --transactional-id pay", why=_EPOCH),
    Case("kafka-transactions describe-producers --topic paid --partition 0", why=_EPOCH),
    *(
        Case(f"kafka-dump-log --files FILES/{SEGMENT} {options}".rstrip())
        for options in ("", "--print-data-log", "--deep-iteration", "--print-data-log --skip-record-metadata", "--max-bytes 200")
    ),
    Case("kafka-transactions list"),
    Case("kafka-transactions describe --transactional-id nope"),
    Case("kafka-transactions describe-producers --topic orders --partition 0"),
    Case("kafka-transactions find-hanging --broker-id NODE"),
    Case("kafka-transactions find-hanging --topic paid"),
    Case("kafka-get-offsets --topic paid --time -1"),
    Case("kafka-cluster cluster-id"),
    Case("kafka-cluster list-endpoints"),
    Case("kafka-configs --describe --entity-type brokers --entity-name NODE"),
    Case("kafka-broker-api-versions", why="the newest version that the tool itself speaks: Kafka's is 4.3's, ours is 4.4's"),
    Case("kafka-features describe"),
    Case("kafka-producer-perf-test --topic perf --num-records 1000 --record-size 100 --throughput -1"),
    Case("kafka-producer-perf-test --topic perf --num-records 10 --throughput -1"),
    Case("kafka-producer-perf-test --topic perf --num-records 100 --payload-monotonic --throughput 1000 --command-property acks=1"),
    Case("kafka-consumer-perf-test --topic perf --num-records 1000"),
    Case("kafka-consumer-perf-test --topic perf --messages 10", why=_OLD_NAME),
    Case("kafka-consumer-perf-test --topic perf --num-records 10 --hide-header"),
    Case("kafka-consumer-perf-test --topic perf --num-records 1000 --show-detailed-stats"),
    Case("kafka-e2e-latency --topic e2e --num-records 10 --producer-acks 1 --record-size 20"),
)

FILES = {
    "reset.csv": "orders,0,1\norders,1,100\n",
    "reset2.csv": "g1,orders,0,1\ng2,orders,1,0\n",
    "delete.json": '{"partitions":[{"topic":"orders","partition":1,"offset":2},'
    '{"topic":"orders","partition":0,"offset":100}],"version":1}',
}


def words_of(case: Case, address: str, files: Path, node: int) -> list[str]:
    """The arguments of a case, with the broker's address where a tool wants it."""
    words = [word.replace("NODE", str(node)).replace("FILES", str(files)) for word in shlex.split(case.line)[1:]]
    if case.tool == "kafka-dump-log":
        return words
    if case.tool == "kafka-cluster":
        return [*words, "--bootstrap-server", address]
    return ["--bootstrap-server", address, *words]


def make_files(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / SEGMENT).write_bytes(_segment())


def _segment() -> bytes:
    """A log of four batches: keys and headers, compressed, and a transaction with its marker."""
    records = [Record(0, 1_700_000_000_000 + number, b"k%d" % number, b"v%d" % number, (("h", b"1"),)) for number in range(3)]
    batches = [
        encode_batch(records, leader_epoch=0),
        encode_batch(records, base_offset=3, codec=CODEC_GZIP, leader_epoch=1, producer_id=7, producer_epoch=0, base_sequence=0),
        encode_batch(
            [Record(0, 1_700_000_000_009, None, None, ())],
            base_offset=6, leader_epoch=1, producer_id=8, producer_epoch=2, base_sequence=0, is_transactional=True,
        ),
        encode_control_batch(
            CONTROL_COMMIT, producer_id=8, producer_epoch=2, coordinator_epoch=3, timestamp=1_700_000_000_010, base_offset=7, leader_epoch=1
        ),
    ]  # fmt: skip
    return b"".join(batches)


# Both sides


def run_theirs(run_java: Callable[[str, str], object], cases: Sequence[Case], address: str, folder: Path, node: int = 0) -> list[Seen]:
    """All cases by Kafka's tools in one JVM; `run_java(class, argument)` runs a class of `tests/clients/java`."""
    make_files(folder)
    lines = []
    for number, case in enumerate(cases):
        base = folder / f"case-{number}"
        if case.stdin:
            base.with_suffix(".in").write_text(case.stdin)
        lines.append("\t".join([str(base), JAVA_CLASSES[case.tool], *words_of(case, address, folder, node)]))
    script = folder / "lines"
    script.write_text("\n".join(lines) + "\n")
    run_java("lines.Lines", str(script))
    return [_read(folder / f"case-{number}") for number in range(len(cases))]


def _read(base: Path) -> Seen:
    if not base.with_suffix(".code").exists():
        return Seen(-1, "", "the tools ended before this line")
    code, out, err = (base.with_suffix(suffix).read_text() for suffix in (".code", ".out", ".err"))
    return Seen(int(code), out, err)


def run_ours(cases: Sequence[Case], address: str, folder: Path, node: int = 0, pause_s: float = 0) -> list[Seen]:
    """All cases by ours, in this process. Apache Kafka's brokers learn of a change a little after it was answered for, and a JVM is slow
    enough not to notice: hence the pause there."""
    make_files(folder)
    seen = []
    for case in cases:
        seen.append(run_line([case.tool, *words_of(case, address, folder, node)], case.stdin))
        time.sleep(pause_s)
    return seen


def run_line(argv: list[str], stdin: str = "") -> Seen:
    """One line of ours in this process."""
    out, err = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
    with tempfile.TemporaryFile("w+") as given:
        given.write(stdin)
        given.seek(0)
        before, sys.stdin = sys.stdin, given
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = ottla(argv)
        finally:
            sys.stdin = before
    out.flush()
    buffer = out.buffer
    assert isinstance(buffer, io.BytesIO)
    return Seen(code, buffer.getvalue().decode(), err.getvalue())


# Comparing

_SAME = (
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), "HOST:PORT"),
    (re.compile(r"(?<=127\.0\.0\.1 )\d+ +"), "PORT "),
    (re.compile(r"TopicId: [\w-]{22}"), "TopicId: ID"),
    (re.compile(r"Cluster ID: .*"), "Cluster ID: ID"),
    (re.compile(r"\b1[67]\d{11}\b"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"), "DATE"),
    (re.compile(r'"logDir":"[^"]*"'), '"logDir":"DIR"'),
    (re.compile(r"(console-consumer|perf-consumer)-\d+ *"), r"\1-N"),
    (re.compile(r"\S+/(?=0{20}\.)"), "DIR/"),
    (re.compile(r"test-group-\d+ *"), "test-group-N"),
    (re.compile(r"\b(Epoch: )\d+$", re.MULTILINE), r"\1N"),
    (re.compile(r"^\d+ +\t", re.MULTILINE), "ID\t"),
)
_PARTITIONS = re.compile(r'\{"partition":[^]]*')
_MEASURED = re.compile(r"\d+(\.\d+)?")


def normal(text: str, tool: str) -> str:
    """What must be equal: no addresses, times, ids; of measurements only the words."""
    for pattern, instead in _SAME:
        text = pattern.sub(instead, text)
    text = _PARTITIONS.sub(lambda found: ",".join(sorted(found[0].replace("},{", "}\0,{").split("\0,"))), text)
    if "perf-test" in tool or "latency" in tool:
        text = _MEASURED.sub("N", text)
    return text


def ordered(text: str) -> list[str]:
    """Lines whose order does not count; of JSON and lists in a line nothing is changed."""
    return sorted(text.splitlines())


class Verdict(NamedTuple):
    """One case, judged."""

    case: Case
    theirs: Seen
    ours: Seen

    @property
    def has_same_output(self) -> bool:
        theirs, ours = (normal(seen.stdout, self.case.tool) for seen in (self.theirs, self.ours))
        return theirs == ours or ordered(theirs) == ordered(ours)

    @property
    def has_same_exit(self) -> bool:
        return (self.theirs.code == 0) == (self.ours.code == 0)

    def show(self) -> str:
        theirs = f"--- Kafka ({self.theirs.code})\n{self.theirs.stdout}{self._why()}"
        return f"{self.case.line}\n{theirs}--- ours ({self.ours.code})\n{self.ours.stdout}{self.ours.stderr}"

    def _why(self) -> str:
        return "".join(f"  ! {line}\n" for line in self.theirs.stderr.splitlines()[:3])


def table(verdicts: Sequence[Verdict]) -> str:
    """Tool, cases, equal, differs and why, in Markdown."""
    lines = ["| Tool | Cases | Equal | Differ | Why |", "| --- | --- | --- | --- | --- |"]
    total = [0, 0, 0]
    for tool in dict.fromkeys(verdict.case.tool for verdict in verdicts):
        of_tool = [verdict for verdict in verdicts if verdict.case.tool == tool]
        unequal = [verdict for verdict in of_tool if not (verdict.has_same_output and verdict.has_same_exit)]
        counts = [len(of_tool), len(of_tool) - len(unequal), len(unequal)]
        total = [one + other for one, other in zip(total, counts, strict=True)]
        reasons: dict[str, int] = {}
        for verdict in unequal:
            why = "; ".join(filter(None, (verdict.case.why, verdict.case.exits))) or f"NOT EXPLAINED: `{verdict.case.line}`"
            reasons[why] = reasons.get(why, 0) + 1
        text = "; ".join(f"{why} ({count})" if count > 1 else why for why, count in reasons.items())
        lines.append(f"| `{tool}` | {counts[0]} | {counts[1]} | {counts[2]} | {text} |")
    lines.append(f"| all | {total[0]} | {total[1]} | {total[2]} | |")
    return "\n".join(lines) + "\n"


# By hand


@contextlib.contextmanager
def _broker(is_kafka: bool) -> Iterator[tuple[str, int]]:
    """A broker with nothing in it: (address, its number)."""
    from tools.bench.brokers import start_kafka, start_ottla
    from tools.bench.peer import JARS

    broker = start_kafka(JARS.absolute()) if is_kafka else start_ottla("--set", "group.initial.rebalance.delay.ms=0")
    try:
        yield broker.address, 1 if is_kafka else 0
    finally:
        broker.stop()


def compare(is_kafka: bool) -> list[Verdict]:
    from tests.clients.java_program import Java

    java = Java(lambda name: shutil.which(name) or sys.exit(f"{name} is needed"))
    sides = []
    for side in ("theirs", "ours"):
        with _broker(is_kafka) as (address, node), tempfile.TemporaryDirectory() as folder:
            if side == "theirs":
                sides.append(run_theirs(java.run, CASES, address, Path(folder), node))
            else:
                sides.append(run_ours(CASES, address, Path(folder), node, pause_s=0.1 if is_kafka else 0))
    return [Verdict(case, theirs, ours) for case, theirs, ours in zip(CASES, *sides, strict=True)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Kafka's command-line tools and ours on the same lines.")
    parser.add_argument("--kafka", action="store_true", help="on Apache Kafka instead of a broker of ours")
    parser.add_argument("--show", action="store_true", help="the outputs that are not equal")
    args = parser.parse_args(arguments)
    verdicts = compare(args.kafka)
    if args.show:
        for verdict in verdicts:
            if not (verdict.has_same_output and verdict.has_same_exit):
                sys.stdout.write(verdict.show() + "\n")
    sys.stdout.write(table(verdicts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
