"""`ottla clone`: its options, what it prints, and its refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

import ottla.client
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla

TRANSFORM = """
def transform(partition, record):
    if record.value == b"2":
        return None
    return record._replace(value=partition.topic.encode() + b"-" + record.value)
"""


@pytest.fixture
def orders(broker: Broker, topic: str) -> str:
    for number in range(5):
        broker.add_record(topic, str(number), key="key")
    return topic


def test_a_clone_says_what_it_has_and_how_to_go_on(ottla: Ottla, orders: str, tmp_path: Path) -> None:
    done = ottla("clone", "--topics", orders, "-d", tmp_path / "one", "--groups", "unknown")
    assert (done.code, done.err) == (0, ""), done
    assert done.out.startswith("Cloned 1 topic (1 partition, ") and "the offsets of 0 groups. Start a broker with `ottla start" in done.out
    found = ottla("clone", "--topic", orders, "-d", tmp_path / "two", "--offsets", "-2", "-o", "json").json()
    assert found["partitions"] == [{"topic": orders, "partition": 0, "start": 3, "end": 5}]
    assert (found["continued"], found["data_dir"]) == (False, str(tmp_path / "two"))


def test_the_source_by_position_and_records_that_a_file_changes(offline: Ottla, broker: Broker, orders: str, tmp_path: Path) -> None:
    (tmp_path / "mask.py").write_text(TRANSFORM)
    words = ("clone", broker.bootstrap_server, "--topics", orders, "-d", tmp_path / "copy", "--transform", tmp_path / "mask.py")
    assert offline(*words, "-c", "retention.ms=-1").code == 0
    with Broker(data_dir=tmp_path / "copy") as copy, ottla.client.connect(copy.bootstrap_server) as client:
        found = [(record.offset, record.value) for record in copy.records(orders)]
        assert client.topic_configs(orders)["retention.ms"] == "-1"
    assert found == [(number, f"{orders}-{number}".encode()) for number in (0, 1, 3, 4)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def transform(partition, record):\n    return record.x\n", "mask.py:2: AttributeError: 'Record' object has no attribute 'x'"),
        ("def transform(partition, record):\n    return 'a'\n", "transform must return record._replace(...) with bytes, or None"),
        ("import nowhere_to_be_found\n", "mask.py:1: ModuleNotFoundError: No module named"),
        ("def other():\n    pass\n", "has no function transform(partition, record)"),
    ],
)
def test_a_file_with_an_error_is_one_line(ottla: Ottla, orders: str, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mask.py").write_text(text)
    done = ottla("clone", "--topics", orders, "-d", tmp_path / "copy", "--transform", tmp_path / "mask.py")
    assert done.code in (1, 2) and done.err.count("\n") == 1 and message in done.err
    assert not (tmp_path / "copy").exists()


def test_an_error_in_a_file_of_the_current_directory_has_its_line(
    ottla: Ottla, orders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mask.py").write_text("def transform(partition, record):\n    return record.x\n")
    done = ottla("clone", "--topics", orders, "-d", tmp_path / "copy", "--transform", "mask.py")
    assert "error: mask.py:2: AttributeError" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--last", "10"), "--last '10' is not 10m, 24h or 7d"),
        (("--size", "10 bananas"), "--size '10 bananas' is not 64MiB or a number of bytes"),
        (("--offsets", "@-1h"), "--offsets '@-1h' is none of A:B, A-B, A, -N"),
        (("--since", "2026-01-02", "--until", "2026-01-01"), "--until 2026-01-01 is before --since 2026-01-02"),
        (("--sample", "0"), "--sample '0' is not a share such as 1% or 0.01"),
        (("--sample", "many"), "--sample 'many' is not a share such as 1% or 0.01"),
        (("--transform", "nowhere.py"), "there is no file nowhere.py"),
        (("--follow", "--until", "2026-01-01"), "--follow has no end: leave out --until, or the second offset of --offsets"),
        (("--last", "1h", "--size", "1MiB"), "not allowed with argument"),
    ],
)
def test_wrong_usage(ottla: Ottla, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = ottla("clone", "--topics", "orders", "-d", tmp_path / "copy", *words)
    assert (done.code, done.err.count("\n")) == (2, 1) and message in done.err, done


def test_refusals(ottla: Ottla, orders: str, tmp_path: Path) -> None:
    """Each is one line, and leaves no target."""
    target = tmp_path / "copy"
    for words, message in (
        (("--topics", orders + "x"), "did you mean"),
        (("--topics", "__consumer_offsets"), "is an internal topic; committed offsets are cloned with the topics that they are for"),
        (("--topics", orders, "-c", "retention.m=1"), "Unknown topic config name: retention.m; did you mean retention.ms?"),
    ):
        done = ottla("clone", "-d", target, *words)
        assert (done.code, done.err.count("\n")) == (1, 1) and message in done.err, done
        assert not target.exists()
    target.mkdir()
    (target / "file").touch()
    done = ottla("clone", "-d", target / "file" / "below", "--topics", orders)
    assert (done.code, done.err) == (1, f"error: cannot write {target}/file/below.partial: not a directory\n"), done
    done = ottla("clone", "--topics", orders, "-d", target)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert f"{target} is not empty; a clone gets a new directory: name another by --data-dir, or run `ottla reset` before" in done.err


def test_rights(offline: Ottla, tmp_path: Path) -> None:
    """READ for the topic is enough for its records. What else is not allowed is left out, and noted."""
    users = {"admin": "admin-secret", "reader": "reader-secret"}
    settings = {"authorizer.class.name": "acl", "super.users": "User:admin"}
    with Broker(settings=settings, users=users) as broker:
        broker.create_topic("orders")
        broker.add_record("orders", "a")

        def run(*words: str) -> tuple[int, str]:
            properties = broker.write_java_config(tmp_path / "client.properties", user="reader")
            done = offline("clone", broker.bootstrap_server, "--command-config", properties, "-d", tmp_path / "copy", *words)
            return done.code, done.err

        code, error = run("--topics", "orders")
        assert code == 1 and error.count("\n") == 1 and "orders" in error, error
        properties = broker.write_java_config(tmp_path / "admin.properties", user="admin")
        allowed = ("acl", "add", "--allow-principal", "User:reader", "--operation", "read", "--topic", "orders")
        assert offline(*allowed, "-b", broker.bootstrap_server, "--command-config", properties).code == 0
        code, error = run("--topics", "orders", "--groups", "billing")
        assert code == 1 and error.count("\n") == 1 and "GROUP_AUTHORIZATION_FAILED" in error, error
        code, error = run("--topics", "orders")
        assert (code, error) == (0, "note: settings of 'orders' are the defaults: the source allows no DESCRIBE_CONFIGS\n")
    with Broker(data_dir=tmp_path / "copy") as copy:
        assert [record.value for record in copy.records("orders")] == [b"a"]
