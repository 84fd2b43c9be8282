"""The lines of the broker's log: their attributes, that each entry remains one line, and that they contain no secret or control
character."""

from __future__ import annotations

import json
import logging
import socket
import struct
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ottla.base.config import load
from ottla.server.logging_setup import (
    BURST_MAX,
    CAUSES_BYTES_MAX,
    KEPT_LETTERS_MAX,
    LINE_LETTERS_MAX,
    NAME_LETTERS_MAX,
    JsonFormatter,
    KeepingHandler,
    RateLimit,
    TextFormatter,
    sources_line,
)
from ottla.testing.broker import Broker

FACTS = {"listener": "OUTSIDE", "client_id": "billing", "correlation_id": 7}


def record(message: str, *, is_error: bool = False, **facts: object) -> logging.LogRecord:
    made = logging.LogRecord("ottla.connection", logging.WARNING, __file__, 1, message, (), None)
    made.__dict__.update(facts)
    if is_error:
        try:
            raise ValueError("inside")
        except ValueError:
            made.exc_info = sys.exc_info()
    return made


def test_json_names_the_logger_and_the_subject() -> None:
    line = JsonFormatter(3).format(record("closing\nit", created=1_700_000_000.25, msecs=250.0, **FACTS))
    entry = json.loads(line)
    assert datetime.fromisoformat(entry.pop("time")) == datetime.fromtimestamp(1_700_000_000.25, UTC)
    assert entry == {
        "level": "warning", "logger": "ottla.connection", "broker.id": 3, "listener": "OUTSIDE", "client.id": "billing",
        "correlation.id": 7, "message": "closing\nit",
    }  # fmt: skip
    assert "\n" not in line


def test_json_leaves_out_what_does_not_apply() -> None:
    entry = json.loads(JsonFormatter(3).format(record("started", client_id=None)))
    assert set(entry) == {"time", "level", "logger", "broker.id", "message"}


def test_text_says_the_same() -> None:
    line = TextFormatter(3).format(record("closing it", **FACTS))
    said = "WARNING ottla.connection [broker.id=3 listener=OUTSIDE client.id=billing correlation.id=7]: closing it"
    assert line.partition(" WARNING")[1:] == (" WARNING", said.removeprefix("WARNING"))


def test_clients_cannot_forge_a_line_of_text() -> None:
    line = TextFormatter(3).format(record("closing", client_id="x\n2026-01-01 INFO ottla: all is well\x1b[2J"))
    assert "\n" not in line and "\x1b" not in line
    assert "client.id=x\\n2026" in line


@pytest.mark.parametrize("formatter", [TextFormatter(0), JsonFormatter(0)])
def test_a_traceback_is_kept(formatter: logging.Formatter) -> None:
    assert "ValueError: inside" in formatter.format(record("failed", is_error=True))


def test_where_the_configuration_came_from() -> None:
    config, _ = load(
        file_text="num.partitions=3\nlog.retention.ms=5\n", file_name="server.properties",
        environment={"KAFKA_NUM_PARTITIONS": "4"}, assignments=["broker.id=1"],
    )  # fmt: skip
    line = sources_line(config)
    assert line.startswith("configuration: ") and line.endswith(" by default")
    for part in ("1 from --set", "1 from environment", "1 from server.properties"):
        assert part in line
    assert sources_line(load()[0]).startswith("configuration: nothing given; ")


def test_a_refused_request_is_logged_with_its_client_and_number_and_no_secret(tmp_path: Path) -> None:
    settings = {
        "ottla.metrics.listen": "127.0.0.1:0", "ottla.metrics.credentials": "admin:very-secret", "ottla.log.format": "json",
        "sasl.jaas.config": "password=very-secret", "ssl.key.password": "very-secret",
    }  # fmt: skip
    with pytest.warns(UserWarning, match="'KAFKA_MADE_UP_PASSWORD' has no effect"):
        made = Broker(settings=settings).with_env("KAFKA_MADE_UP_PASSWORD", "very-secret")
    with made as broker:
        host, _, port = broker.direct_server.partition(":")
        with socket.create_connection((host, int(port)), timeout=10) as sock:
            # A Produce request of version 9 whose body is nonsense.
            frame = struct.pack(">hhih", 0, 9, 4711, 7) + b"billing" + b"\0" + b"\xff" * 20
            sock.sendall(struct.pack(">i", len(frame)) + frame)
            assert sock.recv(1) == b""
        lines = [json.loads(line) for line in broker.log.splitlines()]
        assert "very-secret" not in broker.log
    (refused,) = [line for line in lines if line["message"].startswith("closing ")]
    assert (refused["client.id"], refused["correlation.id"], refused["listener"]) == ("billing", 4711, "PLAINTEXT")
    assert {line["broker.id"] for line in lines} == {0}
    assert any("made.up.password" in line["message"] for line in lines)


@pytest.mark.parametrize("formatter", [TextFormatter(0), JsonFormatter(0)])
def test_what_clients_make_long_is_cut(formatter: logging.Formatter) -> None:
    long = "x" * 100_000
    named = record("closing %s: %s", client_id=long)
    named.args = (long, ValueError(long))
    line = formatter.format(named)
    assert len(line) < 3 * (NAME_LETTERS_MAX + 3) + 200 and "x..." in line
    assert len(formatter.format(record(long))) < LINE_LETTERS_MAX + 200
    failed = record("failed")
    try:
        raise ValueError(long)
    except ValueError:
        failed.exc_info = sys.exc_info()
    assert len(formatter.format(failed)) < LINE_LETTERS_MAX + 1000


@pytest.mark.parametrize("formatter", [TextFormatter(0), JsonFormatter(0)])
def test_nothing_in_a_line_steers_a_terminal(formatter: logging.Formatter) -> None:
    """Tools show the logs of containers on a terminal without escaping them."""
    steering = "x\x1b[2J\x9b31m\x07\u202egnp\x85\u2028\x7f"
    made = record("closing %s", client_id=steering)
    made.args = (steering,)
    try:
        raise ValueError(steering)
    except ValueError:
        made.exc_info = sys.exc_info()
    line = formatter.format(made)
    assert not [letter for letter in line if not letter.isprintable() and letter != "\n"]
    assert steering in json.loads(line)["exception"] if isinstance(formatter, JsonFormatter) else "\\x9b31m" in line


def test_marks_of_direction_do_not_turn_a_line_of_text() -> None:
    assert "\\u202egnp" in TextFormatter(0).format(record("closing", client_id="\u202egnp.exe"))


def test_lines_of_one_cause_are_limited_and_counted() -> None:
    now = 0.0
    limit = RateLimit(lambda: now)
    assert [limit.filter(record("a")) for _ in range(BURST_MAX + 7)] == [True] * BURST_MAX + [False] * 7
    assert limit.filter(record("b")), "another cause has its own count"
    now = 1.0
    later = record("a")
    assert limit.filter(later)
    assert TextFormatter(0).format(later).endswith("a (7 more like this were left out before)")
    following = record("a")
    assert limit.filter(following) and "left out" not in TextFormatter(0).format(following)


def test_causes_are_bounded() -> None:
    limit = RateLimit(lambda: 0.0)
    for number in range(5_000):
        assert limit.filter(record(f"cause {number}"))
    assert 100 < len(limit._causes) < 5_000 and limit._causes.bytes_kept <= CAUSES_BYTES_MAX


def test_the_last_lines_are_kept_and_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    handler = KeepingHandler()
    handler.setFormatter(TextFormatter(0))
    lines = 2 * KEPT_LETTERS_MAX // 1_000
    for number in range(lines):
        handler.handle(record(f"{number} {'x' * 1_000}"))
    kept = handler.kept()
    assert capsys.readouterr().err.splitlines()[-len(kept) :] == kept
    assert f" {lines - 1} x" in kept[-1] and KEPT_LETTERS_MAX - 2_000 < sum(map(len, kept)) <= KEPT_LETTERS_MAX
