"""Options of `start` become settings; what was given in full wins."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ottla.cli.broker.start import StartError, add_arguments, option_assignments, parse_seed_topics, read_config


def _args(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
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
