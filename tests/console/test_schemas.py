"""Pages of messages whose records a schema decodes: Avro, Protobuf, and schemas of a registry."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from ottla.cli.command import UsageError
from ottla.cli.main import main
from ottla.cli.schemas.page_decoder import make_page_decoder
from ottla.client.blocking.cluster import Cluster
from ottla.schemas.registry import HEADER, header
from ottla.testing.broker import Broker
from tests.cli.schemas.test_decoding import AS_JSON, AVRO, PROTO, PROTO_AS_JSON, PROTO_ORDER, encoded
from tests.console.window import console_process
from tests.console.world import Visitor, console_of, write
from tests.schemas.running_registry import Registry, running_registry

FRAMED = header(1) + encoded()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics=["avro:1", "proto:1", "framed:1", "tailed:1"]) as broker, Cluster(broker.bootstrap_server) as cluster:
        write(cluster, "avro", encoded(), None, b"no avro")
        write(cluster, "proto", PROTO_ORDER)
        write(cluster, "framed", FRAMED, header(2, (0,)) + PROTO_ORDER, b"plain", key=FRAMED)
        yield broker


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        running.schemas.update({1: {"schema": json.dumps(AVRO)}, 2: {"schema": PROTO, "schemaType": "PROTOBUF"}})
        yield running


@pytest.fixture
def schemas(tmp_path: Path) -> list[str]:
    """The values of `--schema`."""
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    (tmp_path / "order.proto").write_text(PROTO)
    return [f"avro={tmp_path / 'order.avsc'}", f"proto={tmp_path / 'order.proto'}"]


def args(registry: str | None = None, schema: list[str] | None = None, message: list[str] | None = None) -> Namespace:
    return Namespace(registry=registry, schema=schema or [], message=message or [])


@contextmanager
def console(broker: Broker, **options: Any) -> Iterator[Visitor]:
    with console_of(broker.bootstrap_server, decode=make_page_decoder(args(**options))) as visitor:
        yield visitor


def records(visitor: Visitor, topic: str, query: str = "") -> list[dict[str, Any]]:
    return list(visitor.json(f"/topics/{topic}/messages.json?from=earliest{query}")["records"])


def test_values_of_a_topic_with_a_file(broker: Broker, schemas: list[str]) -> None:
    with console(broker, schema=schemas) as visitor:
        order, null, other = records(visitor, "avro")
        assert (json.loads(order["value"]), order["kind"], order["schema"]) == (AS_JSON, "json", "by its file")
        assert order["size"] == len(encoded())
        assert (null["value"], null["schema"]) == (None, "")
        assert other["value"] == "no avro" and other["schema"].startswith("does not fit its file: ")
        assert json.loads(records(visitor, "proto")[0]["value"]) == PROTO_AS_JSON
        assert [one["offset"] for one in records(visitor, "avro", "&where=value.amount == 5")] == [0]
        assert "by its file" in visitor.get("/topics/avro/messages")
        page = visitor.get("/topics/avro/record?partition=0&offset=0")
        assert "äpfel" in page and "by its file" in page
        assert visitor.http.get("/topics/avro/value?partition=0&offset=0").content == encoded()
    with console(broker, schema=schemas, message=["proto=Refund"]) as visitor:
        assert json.loads(records(visitor, "proto")[0]["value"])["reason"] == "apples"


def test_values_and_keys_with_the_header_of_a_registry(broker: Broker, registry: Registry) -> None:
    with console(broker, registry=registry.url) as visitor:
        avro, proto, plain = records(visitor, "framed")
        assert json.loads(avro["value"]) == json.loads(avro["key"]) == json.loads(plain["key"]) == AS_JSON
        assert avro["schema"] == "by schema 1; key: by schema 1"
        assert json.loads(proto["value"]) == PROTO_AS_JSON and proto["schema"].startswith("by schema 2")
        assert (plain["value"], plain["schema"]) == ("plain", "key: by schema 1")


def test_records_that_are_appended_are_decoded(broker: Broker, registry: Registry) -> None:
    with console_process(
        broker.bootstrap_server, "-X", "security.protocol=PLAINTEXT", "--registry", registry.url
    ) as url, urlopen(f"{url}/topics/tailed/tail", timeout=60) as tail, Cluster(broker.bootstrap_server) as cluster:  # fmt: skip
        lines = (line.decode() for line in tail)
        assert next(line for line in lines if line.startswith("event:")) == "event: begun\n"
        write(cluster, "tailed", FRAMED)
        found = next(json.loads(line.removeprefix("data: ")) for line in lines if '"records"' in line)
        assert json.loads(found["records"][0]["value"]) == AS_JSON


def test_a_registry_that_is_silent_or_refuses_is_not_asked_for_every_record(
    broker: Broker, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    get: Callable[[str], dict[str, Any] | None] = registry.get
    monkeypatch.setattr(registry, "get", lambda path: (asked.append(path), get(path))[1])
    with Cluster(broker.bootstrap_server) as cluster, console(broker, registry=registry.url) as visitor:
        broker.create_topic("odd", 1)
        write(cluster, "odd", *(HEADER.pack(0, 100 + number) for number in range(50)))
        found = records(visitor, "odd")
        assert len(found) == 50 and all("404" in one["schema"] for one in found)
        assert len(asked) == 4
        assert "404" in records(visitor, "framed")[0]["schema"] and len(asked) == 4
    with console(broker, registry="http://127.0.0.1:9") as visitor:
        (first, *_) = records(visitor, "framed")
        assert first["schema"].startswith("no schema registry at http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--schema", "avro"], "--schema 'avro' is not TOPIC=FILE"),
        (["--schema", "avro=/nowhere.avsc"], "cannot read /nowhere.avsc"),
        (["--message", "proto=Order"], "--message goes with --schema proto=FILE"),
        (["--registry", "somewhere"], "--registry 'somewhere' is not http://HOST:PORT"),
    ],
)
def test_options_that_are_wrong(options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "--port", "0", *options]) == 2
    assert sentence in capsys.readouterr().err


def test_one_schema_for_a_topic(schemas: list[str]) -> None:
    with pytest.raises(UsageError, match="names the topic 'avro' twice"):
        make_page_decoder(args(schema=[schemas[0], schemas[0]]))
