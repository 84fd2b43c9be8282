"""Runs Kafka's command-line tools and Ottla's on the same command lines, and compares their output.

`python -m tools.compare_tools` starts an empty broker for each side, runs every line of `compare_cases.py` with Apache Kafka's tools (one
JVM, `tests/clients/java`) and with ours, and prints a table: tool, cases, equal, differs and why. `--kafka` runs it on a real Apache Kafka,
started twice. Host names, times and ids are replaced before comparing. The order of lines is ignored, because Kafka prints them in the
order of hash tables. Only stdout is compared, and whether the exit code was 0.

A case with a known difference has the reason in `why`. tests/clients/test_apache_tools.py fails if an undeclared case differs, and if a
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

from ottla.cli.kafka_tools.tools import TOOLS
from ottla.cli.main import main as ottla
from ottla.wire.compression import CODEC_GZIP
from ottla.wire.records import CONTROL_COMMIT, Record, encode_batch, encode_control_batch
from tools.compare_cases import CASES, FILES, SEGMENT, Case


class Seen(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    stdout: str
    stderr: str


JAVA_CLASSES = {name: tool.classes[-1] for name, tool in TOOLS.items() if tool.classes}
"""The newest Java class of each tool."""
JAVA_CLASSES["kafka-configs"] = "kafka.admin.ConfigCommand"


def words_of(case: Case, address: str, files: Path, node: int) -> list[str]:
    """Returns the arguments of a case, with the broker's address for tools that need it."""
    words = [word.replace("NODE", str(node)).replace("FILES", str(files)) for word in shlex.split(case.line)[1:]]
    if case.tool == "kafka-dump-log":
        return words
    if case.tool == "kafka-cluster":
        return [*words, "--bootstrap-server", address]
    return ["--bootstrap-server", address, *words]


def make_files(folder: Path, node: int) -> None:
    for name, text in FILES.items():
        (folder / name).write_text(text.replace("NODE", str(node)))
    (folder / SEGMENT).write_bytes(_segment())


def _segment() -> bytes:
    """Returns a log of four batches: one with keys and headers, a compressed one, and a transaction with its marker."""
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

ACCESS = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS",
)  # fmt: skip
"""Settings of a broker that has access rules, although everyone may do everything."""

PATIENCE = ("--request-timeout-ms", "30000")
"""Kafka's console producer gives up a request and its record after 1.5 s, which is too soon for a new JVM on a busy machine."""


def run_theirs(run_java: Callable[[str, str], object], cases: Sequence[Case], address: str, folder: Path, node: int = 0) -> list[Seen]:
    """Runs all cases with Kafka's tools in one JVM. `run_java(class, argument)` runs a class of `tests/clients/java`."""
    make_files(folder, node)
    lines = []
    for number, case in enumerate(cases):
        base = folder / f"case-{number}"
        if case.stdin:
            base.with_suffix(".in").write_text(case.stdin)
        patience = PATIENCE if case.tool == "kafka-console-producer" else ()
        lines.append("\t".join([str(base), JAVA_CLASSES[case.tool], *words_of(case, address, folder, node), *patience]))
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
    """Runs all cases with Ottla's tools, in this process. Waits `pause_s` after each: a broker of Apache Kafka applies a change a little
    after its response, and only Ottla's tools are fast enough to notice.
    """
    make_files(folder, node)
    seen = []
    for case in cases:
        seen.append(run_line([case.tool, *words_of(case, address, folder, node)], case.stdin))
        time.sleep(pause_s)
    return seen


def run_line(argv: list[str], stdin: str = "") -> Seen:
    """Runs one command of Ottla in this process."""
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
    (re.compile(r'"log_dirs":\["/[^]]*\]'), '"log_dirs":["DIR"]'),
    (re.compile(r"(console-consumer|perf-consumer)-\d+ *"), r"\1-N"),
    (re.compile(r"\S+/(?=0{20}\.)"), "DIR/"),
    (re.compile(r"test-group-\d+ *"), "test-group-N"),
    (re.compile(r"\b(Epoch: )\d+$", re.MULTILINE), r"\1N"),
    (re.compile(r"^\d+ +\t", re.MULTILINE), "ID\t"),
)
_QUOTAS = re.compile(r"(?<=\w are )\w+=.*")
_PARTITIONS = re.compile(r'\{"partition":[^]]*')
_MEASURED = re.compile(r"\d+(\.\d+)?")


def normal(text: str, tool: str) -> str:
    """Returns the text to compare, without addresses, times, ids and measured numbers."""
    for pattern, instead in _SAME:
        text = pattern.sub(instead, text)
    text = _PARTITIONS.sub(lambda found: ",".join(sorted(found[0].replace("},{", "}\0,{").split("\0,"))), text)
    if tool == "kafka-acls":
        text = "\n".join(map(str.strip, text.splitlines()))  # Kafka indents the first line by one more
    if tool == "kafka-configs":
        text = _QUOTAS.sub(lambda found: ", ".join(sorted(found[0].split(", "))), text)
    if "perf-test" in tool or "latency" in tool:
        text = _MEASURED.sub("N", text)
    return text


def ordered(text: str) -> list[str]:
    """Returns the lines in alphabetical order, because their order is not compared."""
    return sorted(text.splitlines())


class Verdict(NamedTuple):
    """The results of one case on both sides."""

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
    """Returns a table in Markdown: tool, cases, equal, different, and why."""
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
    """Starts an empty broker. Yields (address, broker id)."""
    from tools.bench.brokers import start_kafka, start_ottla
    from tools.bench.peer import JARS

    if is_kafka:
        broker = start_kafka(JARS.absolute(), *ACCESS)
    else:
        broker = start_ottla(*(word for setting in ("group.initial.rebalance.delay.ms=0", *ACCESS) for word in ("--set", setting)))
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
