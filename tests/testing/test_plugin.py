"""The fixtures, used by pytest runs of their own: alone, under xdist, with a foreign broker, without a Kafka client."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ottla.testing
from ottla.testing.broker import Broker
from ottla.testing.cluster import Cluster
from ottla.testing.sharing import has_ended

ROOT = Path(__file__).resolve().parents[2]

USES = """
import os, re

def test_names(kafka_broker, kafka_topic, kafka_group_id):
    kafka_broker.add_record(kafka_topic, "x")
    assert [record.value for record in kafka_broker.records(kafka_topic)] == [b"x"]
    assert re.fullmatch(r"test_names-[0-9a-f]{12}", kafka_topic)
    assert kafka_group_id != kafka_topic
"""
SHARED = """
import pytest

@pytest.mark.parametrize("number", range(6))
def test_shared(kafka_broker, kafka_topic, number):
    kafka_broker.add_record(kafka_topic, str(number))
    assert len(kafka_broker.records(kafka_topic)) == 1
    with open("seen", "a") as file:
        file.write(f"{kafka_broker.direct_server} {getattr(kafka_broker, 'pid', 0)}\\n")
"""


def run(directory: Path, source: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A pytest run in an empty project, with this plugin and no others but those that are named."""
    (directory / "test_it.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "ottla.testing.plugin", "-p", "no:cacheprovider", *options]
    settings = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), **environment}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "OTTLA_"))}
    return subprocess.run(command, cwd=directory, env={**kept, **settings}, capture_output=True, text=True, timeout=300, check=False)


def check_passed(done: subprocess.CompletedProcess[str], count: int) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"\b{count} passed\b", done.stdout), done.stdout


def test_the_fixtures_of_a_single_run(tmp_path: Path) -> None:
    check_passed(run(tmp_path, USES, "-W", "error"), 1)


def test_all_workers_share_one_broker_and_the_controller_stops_it(tmp_path: Path) -> None:
    (tmp_path / "left").mkdir()
    check_passed(run(tmp_path, SHARED, "-p", "xdist", "-n", "2", TMPDIR=str(tmp_path / "left")), 6)
    seen = set((tmp_path / "seen").read_text().splitlines())
    assert len(seen) == 1
    assert has_ended(int(seen.pop().split()[1]), time.monotonic())
    assert list((tmp_path / "left").glob("ottla-*")) == []


def test_a_named_broker_is_used_and_left_clean(broker: Broker, tmp_path: Path) -> None:
    before = set(broker.topics())
    check_passed(run(tmp_path, USES, OTTLA_BOOTSTRAP=broker.direct_server), 1)
    assert set(broker.topics()) == before
    source = f"def test_address(kafka_broker):\n    assert kafka_broker.direct_server == {broker.direct_server!r}\n"
    done = run(tmp_path, source, "-v", KAFKA_BOOTSTRAP_SERVERS=broker.direct_server)
    check_passed(done, 1)
    assert f"kafka_broker: the running broker {broker.direct_server} (" in done.stdout
    source = source.replace("==", "!=")
    check_passed(run(tmp_path, source, OTTLA_BOOTSTRAP="", KAFKA_BOOTSTRAP_SERVERS=broker.direct_server), 1)


def hide(directory: Path, *modules: str) -> None:
    """As if these were not installed."""
    for name in modules:
        (directory / f"{name}.py").write_text(f"raise ModuleNotFoundError('not installed', name={name!r})\n")


def test_no_client_library_is_needed(tmp_path: Path) -> None:
    hide(tmp_path, "confluent_kafka", "kafka", "aiokafka")
    source = USES + """
def test_what_to_install(kafka_broker):
    import pytest
    for make in (kafka_broker.aio_producer, kafka_broker.aio_consumer):
        with pytest.raises(RuntimeError, match="pip install"):
            make()
"""
    check_passed(run(tmp_path, source), 2)


@pytest.mark.parametrize(("missing", "found"), [("kafka", "confluent_kafka"), ("confluent_kafka", "kafka")])
def test_the_client_that_is_installed_is_used(tmp_path: Path, missing: str, found: str) -> None:
    hide(tmp_path, missing)
    source = f"""
def test_client(kafka_broker, kafka_topic, kafka_group_id):
    producer, consumer, admin = kafka_broker.producer(), kafka_broker.consumer(kafka_topic, group_id=kafka_group_id), kafka_broker.admin()
    for made in (producer, consumer, admin):
        assert type(made).__module__.split(".")[0] in ({found!r}, "cimpl"), type(made)
    if {found!r} == "kafka":
        producer.send(kafka_topic, b"hello").get(60)
        assert next(consumer).value == b"hello"
        producer.close()
        admin.close()
    else:
        producer.produce(kafka_topic, b"hello")
        assert producer.flush(60) == 0
        assert consumer.poll(60).value() == b"hello"
    consumer.close()
"""
    check_passed(run(tmp_path, source), 1)


def test_a_cluster_of_one_and_one_of_three(tmp_path: Path) -> None:
    source = """
def test_one(kafka_cluster):
    assert kafka_cluster(1, topics=["orders"]).topics() == ["orders"]

def test_three(kafka_cluster):
    cluster = kafka_cluster(3, topics=["orders"])
    cluster.add_record("orders", "first")
    leader = cluster.leader_of("orders")
    leader.kill()
    cluster.add_record("orders", "second")
    assert cluster.leader_of("orders") is not leader
    leader.start()
    assert [record.value for record in cluster.records("orders")] == [b"first", b"second"]
"""
    check_passed(run(tmp_path, source), 2)


def test_odd_test_names_make_legal_topics(tmp_path: Path) -> None:
    source = """
import pytest

@pytest.mark.parametrize("text", ["\\u00e4 / b", "x" * 300, ""])
def test_name(kafka_broker, kafka_topic, text):
    assert kafka_topic in kafka_broker.topics()
"""
    check_passed(run(tmp_path, source), 3)


def test_a_run_that_does_not_use_the_plugin_imports_nothing_for_it() -> None:
    code = "import sys, pytest; before = set(sys.modules); import ottla.testing.plugin; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    assert set(done.stdout.split()) <= {"ottla", "ottla.testing", "ottla.testing.plugin", "uuid", "platform", "_uuid"}


def test_the_package_has_a_cluster_as_well() -> None:
    """For fixtures of a wider scope than `kafka_cluster`."""
    assert ottla.testing.Cluster is Cluster
    assert all(getattr(ottla.testing, name) for name in ottla.testing.__all__)


def test_faults_end_with_the_test_that_set_them(tmp_path: Path) -> None:
    source = """
def test_pause(kafka_broker, kafka_topic):
    kafka_broker.fail_next("Metadata", "UNKNOWN_SERVER_ERROR", times=1000)
    kafka_broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=1000)
    kafka_broker.pause()

def test_other(kafka_broker, kafka_topic):
    producer = kafka_broker.producer(delivery_timeout_ms=60000)
    failed = []
    producer.produce(kafka_topic, b"x", on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(60) == 0
    assert failed == []

def test_proxy(kafka_broker, kafka_topic):
    assert kafka_broker.bootstrap_server
    assert kafka_broker._proxy.may_pass.is_set()
    assert kafka_broker._proxy.take_fault(0, ("", 0)) is None
"""
    check_passed(run(tmp_path, source), 3)


def test_faults_end_before_fixtures_close_their_clients(tmp_path: Path) -> None:
    source = """
import pytest

@pytest.fixture
def producer(kafka_broker):
    producer = kafka_broker.producer()
    yield producer
    assert producer.flush(60) == 0

def test_it(kafka_broker, kafka_topic, producer):
    kafka_broker.pause()
    producer.produce(kafka_topic, b"patience")
"""
    check_passed(run(tmp_path, source), 1)


def test_a_failure_shows_the_line_of_the_user(tmp_path: Path) -> None:
    source = """
import contextlib
import json
import ottla.client, ottla.testing, pytest

@pytest.fixture
def settings(kafka_cluster):
    return kafka_cluster(1, settings={"num.partitons": 2})  # in a fixture

def test_fixture(settings):
    pass

def test_block(kafka_broker, kafka_topic):
    with kafka_broker.assert_produces(kafka_topic, 1, timeout=0.01):  # in a block
        pass

def test_client():
    ottla.client.connect("localhost:1")  # in a client

def test_method(kafka_broker):
    kafka_broker.records("nothing")  # in a method

def test_callback(kafka_broker, kafka_topic):
    def fail(*_):
        json.loads("{")  # in a callback
    producer = kafka_broker.producer(client="ottla.client", on_delivery=fail)
    producer.produce(kafka_topic, "x")
    producer.flush()

def test_start(kafka_cluster):
    kafka_cluster(1, settings={"log.dirs": "/proc/no"})  # at the start
"""
    done = run(tmp_path, source)
    assert done.returncode == 1
    shown = re.findall(r"^>.*# (.*)", done.stdout, re.MULTILINE)
    assert shown == ["in a fixture", "in a block", "in a client", "in a method", "at the start"]
    assert "# in a callback" in done.stdout and "json/decoder.py" in done.stdout
    assert not re.search(r"ottla/(testing|client)/", done.stdout)
    assert "BrokerDidNotStart: cannot create the directory /proc/no" in done.stdout
    whole = run(tmp_path, source, "--full-trace")
    assert len(re.findall(r"ottla/(testing|client)/", whole.stdout)) > 10


def test_a_failure_of_our_own_fixture_shows_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture(scope='session')\ndef kafka_broker_settings():\n    return {'log.dirs': '/proc/no'}\n"
    )
    done = run(tmp_path, "def test_it(kafka_broker):\n    pass\n")
    assert len(re.findall(r"^>", done.stdout, re.MULTILINE)) == 1 and "def kafka_broker(" in done.stdout
    assert "BrokerDidNotStart: cannot create the directory /proc/no" in done.stdout


def test_a_failed_test_shows_what_its_broker_has_logged(tmp_path: Path) -> None:
    source = """
import pytest, socket

def disturb(broker, name):
    with socket.create_connection(broker.direct_server.split(":")) as sock:
        sock.sendall(b"GET /" + name + b" HTTP/1.1\\r\\nHost: " + name + b".example\\r\\n\\r\\n")
        while sock.recv(100):
            pass

def test_before(kafka_broker):
    disturb(kafka_broker, b"before")

def test_fails(kafka_broker, kafka_cluster):
    kafka_cluster(1)
    disturb(kafka_broker, b"during")
    assert False, "for a reason"

def test_passes(kafka_broker):
    disturb(kafka_broker, b"after")
"""
    done = run(tmp_path, source)
    assert done.returncode == 1
    assert done.stdout.count("Log of broker at 127.0.0.1:") == 2, done.stdout
    assert "during.example" in done.stdout
    assert "READY" in done.stdout  # that of the test's own broker begins with its start
    assert "before.example" not in done.stdout
    assert "after.example" not in done.stdout


SETTINGS = """
import pytest

@pytest.fixture(scope="session")
def kafka_broker_settings():
    return {"num.partitions": 7, "auto.create.topics.enable": True}
"""
WITH_SETTINGS = """
import pytest

@pytest.mark.parametrize("number", range(2))
def test_it(kafka_broker, number):
    kafka_broker.add_record(f"topic-{number}", "x")
    assert len(kafka_broker._ends(f"topic-{number}", "LATEST", True)) == 7
"""


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "2")])
def test_a_project_gives_the_settings_of_its_broker(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "conftest.py").write_text(SETTINGS)
    check_passed(run(tmp_path, WITH_SETTINGS, *options), 2)


def test_an_unknown_setting_is_an_error_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(SETTINGS.replace("num.partitions", "num.partitons"))
    done = run(tmp_path, WITH_SETTINGS)
    assert "unknown setting 'num.partitons'; did you mean 'num.partitions'?" in done.stdout
