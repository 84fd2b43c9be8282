"""Reading names and values of settings from text: properties files by Java's rules, TOML, the environment, arguments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.settings.setting import SettingError
from ottla.base.settings.sources import environment_key, nearest, parse_assignments, parse_environment, parse_file, parse_properties

PROPERTIES = [
    ("a=b", {"a": "b"}),
    ("a = b ", {"a": "b "}),
    ("a: b", {"a": "b"}),
    ("a b", {"a": "b"}),
    ("a", {"a": ""}),
    ("a==b", {"a": "=b"}),
    ("  # no\n! no\n\na=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
    ("a=1\\\n    2\\\n3", {"a": "123"}),
    ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
    ("a=x\\ty\\nz\\q", {"a": "x\ty\nzq"}),
    ("a\\ b\\=c=d", {"a b=c": "d"}),
    ("a=\\u0041\\u00e9", {"a": "A\u00e9"}),
    ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
    ("a=1\na=2", {"a": "2"}),
    ("a=1\\", {"a": "1"}),
    ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
]


@pytest.mark.parametrize(("text", "values"), PROPERTIES)
def test_properties(text: str, values: dict[str, str]) -> None:
    assert parse_properties(text) == values


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        values = parse_properties(text)
    except SettingError as error:
        assert "\\u" in text, error
    else:
        assert all(isinstance(value, str) for value in values.values())


@pytest.mark.parametrize("escape", ["\\u12zz", "\\u12", "\\ud83d", "\\ude00\\ud83d"])
def test_a_malformed_escape_is_refused_without_the_value(escape: str) -> None:
    with pytest.raises(SettingError, match=r"ssl\.key\.password") as refused:
        parse_properties(f"ssl.key.password=hush{escape}")
    assert "hush" not in str(refused.value)


PLAIN = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1)


@given(st.dictionaries(PLAIN, PLAIN))
def test_what_is_written_plainly_is_read_back(values: dict[str, str]) -> None:
    assert parse_properties("\n".join(f"{name}={value}" for name, value in values.items())) == values


def test_toml_flat_and_nested_mean_the_same() -> None:
    flat = parse_file('"log.retention.ms" = 5\n"log.dirs" = ["/a", "/b"]\n"auto.create.topics.enable" = true', "x.toml")
    nested = parse_file('[log]\nretention.ms = 5\ndirs = ["/a", "/b"]\n[auto]\ncreate.topics.enable = true', "x.toml")
    assert flat == nested == {"log.retention.ms": "5", "log.dirs": "/a,/b", "auto.create.topics.enable": "true"}


def test_broken_toml_is_one_refusal() -> None:
    with pytest.raises(SettingError, match="not valid TOML"):
        parse_file("= =", "x.toml")


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_LISTENER_NAME_X___Y_SSL_KEY", "listener.name.x-y.ssl.key"),
    ],
)
def test_environment_names(variable: str, key: str) -> None:
    assert environment_key(variable) == key


def test_environment_skips_what_is_for_a_jvm() -> None:
    values, skipped = parse_environment({"KAFKA_OPTS": "", "KAFKA_LOG4J_ROOT_LOGLEVEL": "", "KAFKA_BOOTSTRAP_SERVERS": "", "HOME": ""})
    assert (values, skipped) == ({}, ["KAFKA_LOG4J_ROOT_LOGLEVEL", "KAFKA_OPTS"])


def test_assignments() -> None:
    assert parse_assignments(["a=b=c", " d =", "a=2"]) == {"a": "2", "d": ""}
    with pytest.raises(SettingError, match="key=value"):
        parse_assignments(["nothing"])


def test_nearest_name() -> None:
    assert nearest("num.partition", ["num.partitions", "log.dirs"]) == "num.partitions"
    assert nearest("zzz", ["num.partitions"]) is None


def test_variables_for_a_jvm_an_images_scripts_or_a_service_of_that_name_are_passed_over() -> None:
    """An orchestrator with a service named kafka sets such variables in the environment of each container."""
    skipped = {
        "KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_JMX_PORT": "1", "KAFKA_LOG4J_LOGGERS": "a=INFO", "KAFKA_TOOLS_LOG4J_LOGLEVEL": "ERROR",
        "KAFKA_ENABLE_KRAFT": "yes", "KAFKA_VOLUME_DIR": "/bitnami/kafka", "KAFKA_PORT": "tcp://10.0.0.1:9092",
        "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1", "KAFKA_SERVICE_HOST": "10.0.0.1",
    }  # fmt: skip
    assert parse_environment(skipped) == ({}, sorted(skipped))
    assert parse_environment({"KAFKA_PORT": "9092"}) == ({"port": "9092"}, [])
