"""Every example in a help text runs, with the exit code that it promises; every command has one, and each is in the reference."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from ottla.cli import examples
from ottla.cli.examples import TABLES, Example
from ottla.cli.main import main
from ottla.cli.parser import build_parser
from ottla.client.blocking.cluster import Cluster
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla
from tests.cli.every_command import COMMANDS, EXAMPLES
from tests.cli.groups.test_streams_group import Member
from tests.schemas.running_registry import running_registry

ROOT = Path(__file__).resolve().parents[2]
ORDERS = [{"key": key, "payload": json.dumps({"item": item, "amount": amount})} for key, item, amount in (
    ("alice", "apples", 5), ("alice", "bread", 20), ("bob", "bread", 7), ("carol", "cheese", 11),
)]  # fmt: skip
PROTO = 'syntax = "proto3"; message Order { string item = 1; int32 amount = 2; }'
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}, {"name": "amount", "type": "int"}]}
SHIM = """\
#!/bin/sh
exec {python} -m ottla.cli.main "$@"
"""
WITH_ACCESS_RULES = {"authorizer.class.name": "acl", "super.users": "User:ANONYMOUS"}
"""So that the rules of the examples are stored, while the tests may do everything."""
IN_A_SHELL = set("|>&;$")
SECONDS_MAX = 120.0
COLUMNS_MAX = 88


@pytest.fixture(scope="module")
def example_broker() -> Iterator[Broker]:
    with Broker(topics=["orders:2"], settings={"ottla.metrics.listen": "127.0.0.1:0", **WITH_ACCESS_RULES}) as broker:
        yield broker


@pytest.fixture
def place(example_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A directory with the files that the examples name, and a broker with what they expect; `ottla` on PATH is this source tree."""
    broker = example_broker
    broker.reset()
    broker.create_topic("orders", 2)
    binaries = tmp_path / ".bin"
    binaries.mkdir()
    (binaries / "ottla").write_text(SHIM.format(python=shlex.quote(sys.executable)))
    (binaries / "ottla").chmod(0o755)
    (tmp_path / "server.properties").write_text(f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/other-data\n")
    (tmp_path / "orders.json").write_text("".join(order["payload"] + "\n" for order in ORDERS))
    (tmp_path / "order.proto").write_text(PROTO)
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    (tmp_path / "orders.csv").write_text("customer,item,amount\nalice,apples,5\nbob,bread,7\n")
    (tmp_path / "export.json").write_text("".join(json.dumps(order) + "\n" for order in ORDERS))
    (tmp_path / "delete.json").write_text('{"partitions": [{"topic": "orders", "partition": 0, "offset": 1}], "version": 1}')
    (tmp_path / "topics.json").write_text('{"topics": [{"topic": "orders"}], "version": 1}')
    (tmp_path / "plan.json").write_text('{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [0]}]}')
    (tmp_path / "password.txt").write_text("secret\n")
    (tmp_path / "data").symlink_to(broker.data_dir)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.direct_server)
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for number in (0, 1):
        assert main(["produce", "orders", "-q", "-l", "export.json", "--input", "records", "-p", str(number)]) == 0
    return tmp_path


BEFORE: dict[str, tuple[str, ...]] = {
    "restore": ("snapshot backup --data-dir data",),
    "topic delete": ("topic create audit returns -q",),
    "topic alter": ("topic create sales -q",),
    "user delete": ("user add carol --password-file password.txt",),
    "user remove": ("user add alice --password-file password.txt",),
    "group": ("consume orders -g billing -e -q",),
    "why": ("consume orders -g billing -e -q",),
    "consume": ("produce orders -q -l export.json --input records",),
    "share-group": (
        "consume orders --share-group workers -c 1 --timeout-ms 1 -q",
        "share-group reset-offsets workers --topic orders --to-latest --execute",
    ),
    "txn": ("produce orders -q -l orders.json --transactional-id etl-1",),
    "client-metrics delete": ("client-metrics alter etl --metric '*'",),
    "profile set": ("profile create local -b localhost:9092",),
    "profile use": ("profile create local -b localhost:9092",),
    "profile delete": ("profile create prod -b localhost:9092",),
    "bench share-consumer": ("config alter --group workers --add-config share.auto.offset.reset=earliest",),
}  # fmt: skip
"""What a command's examples expect to be there, made by our own commands."""


@pytest.mark.parametrize(
    "name", sorted(name for name, found in EXAMPLES.items() if any(not example.needs and not example.is_endless for example in found))
)
def test_examples_run(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (name.partition(" ")[0], name) if " " in name else (name,):
        for line in BEFORE.get(words, ()):
            main(shlex.split(line))
    with Broker(data_dir=place / "ottla-data") if name in ("status", "stop", "snapshot") else nullcontext():
        for example in EXAMPLES[name]:
            if not example.needs and not example.is_endless:
                capsys.readouterr()
                code = run(example)
                assert code == example.code, f"{example.line}\n{capsys.readouterr()}"


def run(example: Example) -> int:
    """The exit code of the line: in this process, or in a shell where it is more than one program."""
    words = shlex.split(example.line)
    if words[0] == "ottla" and not IN_A_SHELL & set(example.line.replace("'.*'", "")):
        return main(words[1:])
    return subprocess.run(["bash", "-o", "pipefail", "-c", example.line], timeout=SECONDS_MAX, check=False).returncode


@pytest.mark.parametrize(
    "example", [found for found in examples.EXAMPLES if found.is_endless and not found.needs], ids=lambda found: found.line
)
def test_endless_examples_begin_their_work_and_end_by_ctrl_c(example: Example, place: Path, example_broker: Broker) -> None:
    line = example.line
    if " --port" not in line and "--config" not in line and "consume" not in line:
        line += " --port 0"  # another broker may run on this machine
    process = subprocess.Popen(["bash", "-c", f"exec {line}"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    timer = threading.Timer(SECONDS_MAX, process.kill)
    timer.start()
    is_over = threading.Event()
    writer = threading.Thread(target=_write, args=(example_broker, is_over))
    if "consume" in line:
        writer.start()
    try:
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == (130 if "consume" in line else 0)
    finally:
        is_over.set()
        timer.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
        if writer.is_alive():
            writer.join()


def test_the_examples_of_schemas(place: Path, example_broker: Broker, offline: Ottla) -> None:
    by_file = [example for example in EXAMPLES["produce"] if "--message" in example.line] + of_need("schema")
    with running_registry() as registry:
        for examples in (by_file, sorted(of_need("registry"), key=lambda example: "consume" in example.line)):
            example_broker.reset()
            assert len(examples) == 2
            for example in examples:
                result = offline(*shlex.split(example.line.replace("http://localhost:8081", registry.url))[1:])
                assert result.code == 0, result
            assert [json.loads(line) for line in result.out.splitlines()] == [json.loads(order["payload"]) for order in ORDERS]
    assert registry.subjects == {"orders-value": [1]}


def test_the_examples_of_streams_groups(place: Path, example_broker: Broker) -> None:
    with Cluster(example_broker.bootstrap_server) as cluster:
        Member(cluster, "wordcount", "lines").begin().leave()
    found = of_need("streams")
    assert [run(example) for example in found] == [example.code for example in found] and len(found) == 5


@pytest.mark.usefixtures("need_zookeeper")
def test_the_example_of_a_cluster(place: Path) -> None:
    (example,) = of_need("zookeeper")
    with subprocess.Popen(
        [*shlex.split(example.line), "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        timer = threading.Timer(SECONDS_MAX, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            ready = re.fullmatch(r"READY (\S+) broker\.id=1,2,3 in \d+ ms\n", process.stdout.readline())
            assert ready is not None
            assert main(["topic", "create", "replicated", "-r", "3", "-b", ready[1]]) == 0
            assert main(["produce", "replicated", "-l", "orders.csv", "--acks", "all", "-q", "-b", ready[1]]) == 0
            process.send_signal(signal.SIGINT)
            assert process.wait() == 0
        finally:
            timer.cancel()
            process.kill()


def of_need(need: str) -> list[Example]:
    """The examples that need something which not every test has."""
    return [example for example in examples.EXAMPLES if example.needs == need]


def _write(broker: Broker, is_over: threading.Event) -> None:
    while not is_over.wait(0.2):
        broker.add_record("orders", "x")


def test_the_examples_of_metrics(place: Path, example_broker: Broker, offline: Ottla) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while (found := re.search(r"metrics and health on http://(\S+?)[\"/\s]", example_broker.log)) is None:
        assert time.monotonic() < deadline
    results = [offline(*shlex.split(example.line.replace("localhost:9404", found[1]))[1:]) for example in of_need("metrics")]
    assert [result.code for result in results] == [0, 0, 0], results
    assert "kafka_log_log_size" in results[-1].out


def test_every_command_has_an_example_whose_options_it_knows() -> None:
    assert [name for name, found in EXAMPLES.items() if not found] == []
    assert sum(map(len, EXAMPLES.values())) == len(examples.EXAMPLES)
    assert set(TABLES) <= set(COMMANDS)
    for name, found in EXAMPLES.items():
        for example in found:
            line = re.sub(r" [<>] \S+$", "", example.line.rpartition("| ")[2])
            words = shlex.split(line)
            assert len(example.line) <= COLUMNS_MAX, example
            assert words[: 1 + len(name.split())] == ["ottla", *name.split()], example
            build_parser(f"ottla {name}", COMMANDS[name]).parse_args(words[1 + len(name.split()) :])


def test_help_shows_examples_and_tables(offline: Ottla) -> None:
    text = offline("consume", "--help").out
    for part in (
        "verbs of -f:",
        "%v{hex}",
        "where -o begins and ends:",
        "expressions of --where:",
        "examples:",
        "ottla consume orders -e -J",
    ):
        assert part in text, part
    assert "%%t" not in text
    assert "  ottla topic create sales --partitions 6\n" in offline("topic", "create", "--help").out


def test_the_reference_has_them_and_no_doubled_percent_signs() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert all(example.line in page for example in examples.EXAMPLES)
    for tables in TABLES.values():
        assert all(meaning.replace("|", "\\|") in page for table in tables for _, meaning in table.rows)
    assert page.count("%%") == sum(1 for tables in TABLES.values() for table in tables for word, _ in table.rows if word == "%%")
