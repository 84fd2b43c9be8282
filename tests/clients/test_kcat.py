"""kcat (Debian's package) against a broker process."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.clients.broker_process import BrokerProcess, eventually

Fresh = Callable[[str], str]
Kcat = Callable[..., str]


@pytest.fixture
def kcat(broker: BrokerProcess, need_program: Callable[[str], str]) -> Kcat:
    """`kcat("-L")` runs the program, which must succeed, and returns its stdout."""
    program = need_program("kcat")

    def run(*arguments: str, given: str = "") -> str:
        command = [program, "-b", broker.address, "-X", "fetch.wait.max.ms=50", *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_come_back_as_they_were(kcat: Kcat, fresh: Fresh, codec: str) -> None:
    topic, lines = fresh("kcat"), [f"line {number}" for number in range(1000)]
    kcat("-P", "-t", topic, "-z", codec, given="\n".join(lines) + "\n")
    assert kcat("-C", "-t", topic, "-e", "-q", "-X", "check.crcs=true").splitlines() == lines


def test_keys_headers_and_offsets(kcat: Kcat, fresh: Fresh) -> None:
    topic = fresh("kcat")
    kcat("-P", "-t", topic, "-K", ":", "-H", "h=1", "-X", "enable.idempotence=true", given="a:1\nb:2\nc:3\n")
    assert kcat("-C", "-t", topic, "-e", "-q", "-f", "%p %o %k %s %h\n").splitlines() == ["0 0 a 1 h=1", "0 1 b 2 h=1", "0 2 c 3 h=1"]
    assert kcat("-C", "-t", topic, "-e", "-q", "-o", "-1").splitlines() == ["3"]
    assert kcat("-Q", "-t", f"{topic}:0:-1").strip() == f"{topic} [0] offset 3"


def test_seeking_by_offset_and_by_time(kcat: Kcat, fresh: Fresh) -> None:
    topic = fresh("kcat")
    kcat("-P", "-t", topic, given="1\n2\n")
    between = time.time_ns() // 1_000_000 + 1
    eventually(lambda: time.time_ns() // 1_000_000 > between)
    kcat("-P", "-t", topic, given="3\n4\n")
    assert kcat("-C", "-t", topic, "-e", "-q", "-o", "2").splitlines() == ["3", "4"]
    assert kcat("-C", "-t", topic, "-e", "-q", "-o", "1", "-c", "2").splitlines() == ["2", "3"]
    assert kcat("-C", "-t", topic, "-e", "-q", "-o", f"s@{between}").splitlines() == ["3", "4"]
    assert kcat("-C", "-t", topic, "-e", "-q", "-o", "beginning", "-o", f"e@{between}").splitlines() == ["1", "2"]


def test_nulls_and_large_records(kcat: Kcat, fresh: Fresh) -> None:
    topic, large = fresh("kcat"), "x" * 900_000
    kcat("-P", "-t", topic, "-K", ":", "-Z", given=f"a:\nb:{large}\n")
    assert kcat("-C", "-t", topic, "-e", "-q", "-f", "%k %S\n").splitlines() == ["a -1", "b 900000"]


def test_a_group_resumes_where_it_stopped(kcat: Kcat, fresh: Fresh) -> None:
    topic, group = fresh("kcat"), fresh("group")
    kcat("-P", "-t", topic, given="1\n2\n3\n")
    arguments = ["-G", group, "-q", "-X", "auto.offset.reset=earliest", "-c"]
    assert kcat(*arguments, "2", topic).splitlines() == ["1", "2"]
    assert kcat(*arguments, "1", topic).splitlines() == ["3"]


def test_transactions(kcat: Kcat, fresh: Fresh) -> None:
    topic = fresh("kcat")
    kcat("-P", "-t", topic, "-X", f"transactional.id={fresh('transactional')}", given="1\n2\n")
    assert kcat("-C", "-t", topic, "-e", "-q", "-X", "isolation.level=read_committed").splitlines() == ["1", "2"]


def test_the_cluster_is_described(kcat: Kcat, fresh: Fresh, broker: BrokerProcess) -> None:
    topic = fresh("kcat")
    kcat("-P", "-t", topic, given="1\n")
    found = json.loads(kcat("-L", "-J"))
    assert [entry["name"] for entry in found["brokers"]] == [broker.address]
    (described,) = [entry for entry in found["topics"] if entry["topic"] == topic]
    assert len(described["partitions"]) == 1 and described["partitions"][0]["leader"] == found["controllerid"]
