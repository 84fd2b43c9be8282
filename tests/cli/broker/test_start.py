"""Options of `start` become settings; settings given by name win. And starts that are refused."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from ottla.cli.broker.start import OPTIONS, START_OPTIONS, StartError, console_address, option_assignments, parse_seed_topics, read_config
from ottla.cli.command import add_options
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla


def _args(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_options(parser, OPTIONS)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("words", "assignment"),
    [
        (("--sync",), "ottla.flush.on.ack=true"),
        (("--as-version", "3.9"), "ottla.advertise.level=3.9"),
        (("--log-format", "json"), "ottla.log.format=json"),
        (("--log-level", "debug"), "ottla.log.level=debug"),
        (("--port", "0"), "listeners=PLAINTEXT://127.0.0.1:0"),
        (("--host", "0.0.0.0"), "listeners=PLAINTEXT://0.0.0.0:9092"),
        (("-d", "/data"), "log.dirs=/data"),
    ],
)
def test_a_short_option_is_a_setting(words: tuple[str, ...], assignment: str) -> None:
    assert assignment in option_assignments(_args(*words))


@pytest.mark.parametrize("option", ["--set", "--override", "-c"])
def test_the_setting_itself_beats_the_short_option(option: str) -> None:
    args = _args("--sync", "-d", "/data", option, "ottla.flush.on.ack=false", option, "num.partitions=7")
    config, _ = read_config(args)
    assert (config.ottla_flush_on_ack, config.num_partitions) == (False, 7)


def test_sources_by_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("num.partitions = 2\n[log]\ndirs = '/from/file'\n[message]\nmax.bytes = 5000\n")
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "3")
    config, _ = read_config(_args("--config", str(file)))
    assert (config.num_partitions, config.message_max_bytes, list(config.data_directories)) == (3, 5000, ["/from/file"])
    assert read_config(_args("--config", str(file), "--set", "num.partitions=4"))[0].num_partitions == 4


@pytest.mark.parametrize("variable", ["KAFKA_LOG_DIRS", "KAFKA_LOG_DIR", "KAFKA_CFG_LOG_DIRS"])
def test_a_data_directory_of_the_environment(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "/from/environment")
    assert read_config(_args())[0].data_directories == ("/from/environment",)
    assert read_config(_args("-d", "/data"))[0].data_directories == ("/data",)


def test_log_dir_in_the_singular_is_as_good() -> None:
    assert read_config(_args("--set", "log.dir=/one"))[0].data_directories == ("/one",)
    assert read_config(_args())[0].data_directories == ("ottla-data",)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(StartError, match="not UTF-8"):
        read_config(_args("--config", str(file)))


def test_seed_topics() -> None:
    assert parse_seed_topics(["a:3,b", "c:1"]) == [("a", 3), ("b", -1), ("c", 1)]
    assert parse_seed_topics([" , "]) == []
    with pytest.raises(StartError, match="'a:x'"):
        parse_seed_topics(["a:x"])


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("start", "--sasl"), "listeners=SASL_PLAINTEXT://HOST:PORT"),
        (("start", "--acls", "--set", "super.users=admin"), "super.users: Expected User:name but found admin"),
        (("start", "--set", "super.users=User:admin"), "there is no authorizer, so everyone may do everything"),
        (("start", "--set", "ottla.console.listen=8080"), "ottla.console.listen=8080 is not host:port"),
        (("start", "--set", "ottla.console.registry=me:pw@there"), "ottla.console.registry is not http://HOST:PORT or https://HOST:PORT"),
        (("start", "--config", "no-such-file"), "cannot read no-such-file"),
        (("start", "--set", "num.partitions=many"), "num.partitions"),
        (("start", "--set", "nonsense"), "not of the form key=value"),
        (("start", "--seed-topic", "a:b"), "not NAME or NAME:PARTITIONS"),
        (("start", "--seed-topic", "a:0"), "not NAME or NAME:PARTITIONS"),
        (("start", "--seed-topic", "no spaces:3"), "Topic name is invalid"),
        (("start", "--as-version", "9.9", "--ephemeral"), "ottla.advertise.level"),
        (("start", "--host", "192.0.2.1", "--ephemeral", "--log-level", "error"), "Cannot assign requested address; choose an a"),
        (("start", "--host", "no.invalid", "--ephemeral", "--log-level", "error"), "choose an address of this machine"),
    ],
)
def test_what_cannot_be_started_is_one_line(offline: Ottla, words: tuple[str, ...], what: str) -> None:
    result = offline(*words)
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1) and what in result.err


def test_a_cluster_without_a_zookeeper_is_one_line(offline: Ottla, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    result = offline("dev", "--brokers", "3")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert "install the package zookeeper" in result.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("start", "--brokers", "3"), "ottla dev --brokers 3"),
        (("start", "--ports", "1,2"), "ottla dev --brokers 2"),
        (("dev", "--brokers", "3", "--config", "x"), "leave out --config"),
        (("dev", "--ports", "1,x"), "a list of ports"),
        (("start", "--console-port", "80800"), "a number from 0 to 65535"),
        (("dev", "--no-console", "--console-port", "0"), "does not go with --no-console"),
        (("dev", "--brokers", "3", "--set", "x"), "not KEY=VALUE"),
        (("dev", "--brokers", "3", "--set", "log.dirs=/kept"), "leave out log.dirs"),
        (("dev", "--brokers", "3", "--set", "log.dir=/kept"), "leave out log.dir:"),
        (("dev", "--brokers", "3", "--set", "listeners=PLAINTEXT://0.0.0.0:9092"), "leave out listeners"),
    ],
)
def test_words_that_fit_no_cluster(offline: Ottla, words: tuple[str, ...], what: str) -> None:
    result = offline(*words)
    assert (result.code, result.out) == (2, "")
    assert what in result.err


@pytest.mark.parametrize(
    ("is_dev", "words", "setting", "address"),
    [
        (True, (), None, "127.0.0.1:8080"),
        (True, ("--no-console",), "127.0.0.1:9000", ""),
        (True, (), "127.0.0.1:9000", "127.0.0.1:9000"),
        (False, (), None, ""),
        (False, (), "[::1]:0", "[::1]:0"),
        (False, ("--console-port", "0"), "127.0.0.1:9000", "127.0.0.1:0"),
    ],
)
def test_where_the_console_listens(is_dev: bool, words: tuple[str, ...], setting: str | None, address: str) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, START_OPTIONS)
    args = parser.parse_args(words)
    args.is_dev = is_dev
    assert console_address(args, setting) == address


def test_dev_leaves_nothing_behind(offline: Ottla, tmp_path: Path) -> None:
    """`dev` has a directory of its own; its one line on stdout has its address. Its console shows it, and the broker survives the console.
    """
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "ottla.cli.main", "dev", "--port", "0", "--console-port", "0"]
    command += ["--seed-topic", "a:2,b", "--log-format", "json", "-q"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("READY 127.0.0.1:")
            assert len(list(tmp_path.glob("ottla-*"))) == 1
            assert process.stderr is not None
            log = (json.loads(entry)["message"] for entry in process.stderr)
            url = next(message for message in log if message.startswith("console at ")).removeprefix("console at ")
            with urlopen(f"{url}/api/v1/topics", timeout=60) as answer:
                assert [topic["topic"] for topic in json.load(answer)["topics"]] == ["a", "b"]
            for console in children_of(process.pid):
                os.kill(console, signal.SIGKILL)
            assert "the console has ended with code -9" in log
            listed = offline("topic", "list", "-b", line.split()[1], "-o", "plain")
            assert [row.split("\t")[0] for row in listed.out.splitlines()] == ["a", "b"]
        finally:
            process.terminate()
            out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (0, "")
    assert list(tmp_path.glob("ottla-*")) == []
    assert all(json.loads(entry) for entry in err.splitlines())


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def loopback_hosts() -> list[str]:
    """The loopback addresses of this machine, of IPv4 and, where it has that, IPv6."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return ["127.0.0.1", "::1"]
    except OSError:
        return ["127.0.0.1"]


@pytest.mark.parametrize("host", loopback_hosts())
def test_the_address_that_is_printed_can_be_used(offline: Ottla, tmp_path: Path, host: str) -> None:
    """By clients, and by the commands that find a broker by its directory."""
    data = tmp_path / "data"
    command = [sys.executable, "-m", "ottla.cli.main", "start", "--host", host, "--port", "0", "-d", str(data), "--seed-topic", "a"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().split()[1]
            assert offline("topic", "list", "-b", address, "-o", "plain").out == "a\n"
            found = offline("status", "-d", data, "-o", "json").json()
            assert (found["address"], found["answer_ms"] > 0) == (address, True)
            assert offline("stop", "-d", data).code == 0
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_a_bad_setting_leaves_no_temporary_directory(offline: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert offline("dev", "--set", "num.partitions=x").code == 1
    assert list(tmp_path.iterdir()) == []
    assert offline("start", "--ephemeral", "-d", tmp_path / "x").code == 2


def test_ephemeral_removes_only_what_it_has_made(offline: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory given as log.dirs stays, also with --ephemeral."""
    data = tmp_path / "data"
    (data / "t-0").mkdir(parents=True)
    (data / "meta.properties").write_text("damaged")
    assert offline("start", "--ephemeral", "--set", f"log.dirs={data}", "--port", "0").code == 1
    assert (data / "t-0").exists()


def test_settings_reach_the_broker(offline: Ottla, tmp_path: Path) -> None:
    with Broker(settings={"num.partitions": 4}, data_dir=tmp_path / "data") as broker:
        described = offline("config", "describe", "--broker", "0", "--all", "-b", broker.bootstrap_server, "-o", "json")
    values = {entry["key"]: entry["value"] for entry in described.json()["configs"]}
    assert values["num.partitions"] == "4"


@pytest.mark.parametrize(("settings", "file_mode", "directory_mode"), [({}, 0o600, 0o700), ({"ottla.umask": "027"}, 0o640, 0o750)])
def test_others_may_not_read_what_the_broker_stores(tmp_path: Path, settings: dict[str, str], file_mode: int, directory_mode: int) -> None:
    with Broker(topics=["t:1"], settings=settings, data_dir=tmp_path / "data"):
        partition = tmp_path / "data" / "t-0"
        assert partition.stat().st_mode & 0o777 == directory_mode
        made = [entry.path for entry in os.scandir(partition)] + [entry.path for entry in os.scandir(tmp_path / "data") if entry.is_file()]
        modes = {os.path.basename(path): os.stat(path).st_mode & 0o777 for path in made}
    assert modes and {name: mode for name, mode in modes.items() if mode != file_mode} == {}
