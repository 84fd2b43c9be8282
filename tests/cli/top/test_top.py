"""`ottla top` on a pseudo-terminal and without one."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from ottla.analysis.sample import REQUESTS, GroupActivity, Look, Sampler, TopicActivity, pushing
from ottla.base.metric_text import CLIENT_INFO
from ottla.cli.top.top import as_object
from ottla.cli.top.view import draw, number, shared_lines
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla

SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def busy() -> Iterator[Broker]:
    """A broker with metrics, a group that is behind, and an open transaction."""
    from ottla.base.types import TopicPartition
    from ottla.client.blocking.cluster import Cluster
    from ottla.client.blocking.producer import Producer
    from ottla.client.core.group_admin import commit_offsets

    with Broker(topics=["orders:3"], settings={"ottla.metrics.listen": "127.0.0.1:0"}) as broker:
        for value in range(5):
            broker.add_record("orders", str(value), partition=0)
        with (
            Cluster(broker.direct_server, client_id="etl") as cluster,
            Producer(cluster, transactional_id="etl-1", transaction_timeout_ms=900_000) as producer,
        ):
            commit_offsets(cluster, "billing", {TopicPartition("orders", 0): 2})
            producer.begin()
            producer.produce("orders", b"open", partition=1)
            producer.flush()
            yield broker
            producer.abort()


def metrics_of(broker: Broker) -> str:
    found = re.search(r"metrics and health on http://(\S+)", broker.log)
    assert found is not None
    return found[1]


class Terminal:
    """A program on a pseudo-terminal of 40 lines and 120 columns."""

    def __init__(self, *words: str) -> None:
        self.person, program = pty.openpty()
        fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.before = termios.tcgetattr(program)
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
        self.process = subprocess.Popen([sys.executable, "-m", "ottla.cli.main", *words], stdin=program, stdout=program, env=environment)
        self.program = program
        self.said = ""

    def shows(self, condition: Callable[[str], bool]) -> bool:
        """Reads until what was written since the last call fits."""
        deadline = time.monotonic() + SECONDS_MAX
        while not condition(self.said) and time.monotonic() < deadline:
            has_ended = self.process.poll() is not None
            if select.select([self.person], [], [], 0.1)[0]:
                self.said += os.read(self.person, 65536).decode("utf-8", "replace")
            elif has_ended:
                break
        return condition(self.said)

    def ends(self) -> int | None:
        """The exit code; reads meanwhile, because a program that cannot write does not end."""
        self.shows(lambda _: self.process.poll() is not None)
        return self.process.poll()

    def press(self, key: str) -> None:
        self.said = ""
        os.write(self.person, key.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.person)
        os.close(self.program)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_one(*words: str) -> Terminal:
        opened.append(Terminal(*words))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def test_the_live_view(busy: Broker, terminal: Callable[..., Terminal]) -> None:
    screen = terminal("top", "-b", busy.direct_server, "--interval", "0.2", "--from", metrics_of(busy))
    assert screen.shows(lambda text: all(word in text for word in ("healthy", "orders", "billing", "etl-1", "Ongoing", "Metadata"))), (
        screen.said
    )
    screen.press("g")
    assert screen.shows(lambda text: "Groups 1" in text and "Topics" not in text.rpartition("healthy")[2]), screen.said
    screen.press("q")
    assert screen.ends() == 0
    screen.shows(lambda text: "\x1b[?1049l" in text)
    assert "\x1b[?1049l" in screen.said, "the terminal shows again what it showed before"
    assert termios.tcgetattr(screen.program) == screen.before


def test_rates_are_shown_while_something_produces(terminal: Callable[..., Terminal]) -> None:
    with Broker(topics=["orders:3"]) as broker:
        line = ["produce", "orders", "-b", broker.direct_server, "--generate", "1000000", "--rate", "100", "-q"]
        with subprocess.Popen([sys.executable, "-m", "ottla.cli.main", *line]) as producer:
            try:
                screen = terminal("top", "-b", broker.direct_server, "--interval", "0.5", "--view", "topics")
                assert screen.shows(lambda text: re.search(r"orders +3 +[1-9][\d,.]* +[1-9]", text) is not None), screen.said
            finally:
                producer.kill()


def test_a_broker_that_comes_later(terminal: Callable[..., Terminal]) -> None:
    with Broker() as broker:
        address = broker.direct_server
    screen = terminal("top", "-b", address, "--interval", "0.2", "--from", address, "-X", "request.timeout.ms=300")
    assert screen.shows(lambda text: "asked again every" in text), screen.said
    with Broker(settings={"listeners": f"PLAINTEXT://{address}"}):
        assert screen.shows(lambda text: "healthy" in text), screen.said
    screen.process.send_signal(signal.SIGINT)
    assert screen.ends() == 130
    assert termios.tcgetattr(screen.program) == screen.before


def test_one_picture_and_data(busy: Broker, offline: Ottla) -> None:
    words = ("top", "--once", "--interval", "0.1", "-b", busy.direct_server, "--from", metrics_of(busy))
    picture = offline(*words)
    assert picture.code == 0
    assert [name for name in ("Topics 3", "Groups 1", "Open transactions 1", "Requests") if name not in picture.out] == []
    found = offline(*words, "-o", "json").json()
    (group,) = found["groups"]
    assert (group["name"], group["lag"], group["change"]) == ("billing", 3, 0.0)
    topics = {topic["name"]: topic for topic in found["topics"]}
    assert (topics["orders"]["partitions"], topics["orders"]["end"]) == (3, 6)
    (transaction,) = found["transactions"]
    assert (transaction["name"], transaction["state"], transaction["partitions"]) == ("etl-1", "Ongoing", 1)
    assert any(request["name"] == "ListOffsets" and request["rate"] > 0 for request in found["requests"])


def test_clients_that_push_metrics() -> None:
    from rich.console import Console

    labels = 'client_instance_id="i",client_software_name="librdkafka",client_software_version="2.16",client_source_address="10.0.0.1"'
    lines = "".join(f"{CLIENT_INFO}{{{name},{labels}}} 1\n" for name in (r'client_id="b\""', 'client_id="a"'))
    text = f"a 1\n# TYPE {CLIENT_INFO} gauge\n{lines}z 1\n"
    clients = pushing(text)
    assert [client.name for client in clients] == ["a", 'b"'] and clients[0][1:] == ("librdkafka", "2.16", "10.0.0.1")
    assert pushing("a 1\n") == []
    for view, shown in (("all", clients), ("all", []), ("clients", [])):
        console = Console(width=100, height=40, record=True, file=io.StringIO())
        console.print(draw(Look(0.0, "c", 1, 0, 0, 0, 0, [], [], 0, [], None, "none", shown), view, 40))
        picture = console.export_text()
        assert (f"Clients that push metrics {len(shown)}" in picture) is (bool(shown) or view == "clients")
        assert ("10.0.0.1" in picture) is bool(shown)


def test_without_metrics(broker: Broker, ottla: Ottla) -> None:
    assert "no metrics: start the broker" in ottla("top", "--once", "--interval", "0.1").out
    assert "no metrics at 127.0.0.1:1" in ottla("top", "--once", "--interval", "0.1", "--from", "127.0.0.1:1").out


@pytest.mark.parametrize(
    ("options", "message"),
    [((), "needs a terminal"), (("--interval", "0"), "--interval must be"), (("-o", "csv"), "a picture and -o json")],
)
def test_wrong_usage(ottla: Ottla, options: tuple[str, ...], message: str) -> None:
    result = ottla("top", *options, *(("--interval", "0.1") if "csv" in options else ()))
    assert (result.code, message in result.err) == (2, True)


def test_without_rich(ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    result = ottla("top", "--once", "--interval", "0.1")
    assert (result.code, "pip install rich" in result.err, result.err.count("\n")) == (1, True, 1)


def test_a_picture_fits_the_terminal_and_names_do_not_steer_it() -> None:
    from rich.console import Console

    topics = [TopicActivity(f"topic-{place}\x1b[2J", 1, 0, 5, 1.0) for place in range(500)]
    groups = [GroupActivity(f"group-{place}", "consumer", "Stable", 1, 5, 1.0) for place in range(500)]
    sample = Look(0.0, "c", 1, 0, 500, 1, 2, topics, groups, 500, [], None, "none")
    console = Console(width=100, height=40, record=True, file=io.StringIO())
    console.print(draw(sample, "all", 40))
    lines = console.export_text().splitlines()
    assert len(lines) <= 40
    assert "TROUBLE" in lines[0] and "1 without leader" in lines[0] and "2 out of sync" in lines[0]
    assert "\x1b" not in "".join(lines)
    assert as_object(sample)["topics"][0]["rate"] == 1.0


def test_tables_with_few_rows_leave_their_lines_to_others() -> None:
    """A broker with some topics and no groups shows all topics where the terminal has room for them."""
    from rich.console import Console

    topics = [TopicActivity(f"topic-{place}", 1, 0, 5, 1.0) for place in range(9)]
    sample = Look(0.0, "c", 1, 0, 9, 0, 0, topics, [], 0, [], None, "none")
    console = Console(width=100, height=30, record=True, file=io.StringIO())
    console.print(draw(sample, "all", 30))
    text = console.export_text()
    assert [topic.name for topic in topics if topic.name not in text] == [] and "the first" not in text
    assert shared_lines([100, 2, 0, 30], 40) == [19, 2, 1, 18]
    assert shared_lines([5], 40) == [5]
    assert shared_lines([9, 9, 9, 9], 0) == [1, 1, 1, 1]


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (0.0, "0"), (3.14, "3.1"), (1234.5, "1,234"), (-2.5, "-2.5")])
def test_rates(value: float | None, text: str) -> None:
    assert number(value) == text
    assert number(2.5, is_signed=True) == "+2.5"


def test_a_count_that_has_become_smaller_has_no_rate() -> None:
    """The broker was started again."""
    counts = iter((100, 3, 5))
    sampler = Sampler(cast(Any, None), lambda: f'{REQUESTS}{{request="Fetch"}} {next(counts)}\n')
    sampler._seconds = 2.0
    rates = [rows[0].rate for rows, _note in (sampler._requests() for _ in range(3)) if rows]
    assert rates == [None, None, 1.0]
