"""Records that a schema decodes on a page, and values that a form writes by a schema: Avro, Protobuf, JSON Schema, registries."""

from __future__ import annotations

import html
import json
import re
import uuid
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from ottla.cli.command import UsageError
from ottla.cli.main import main
from ottla.cli.schemas.page_schemas import make_page_schemas
from ottla.client.blocking.cluster import Cluster
from ottla.schemas.registry import HEADER, header
from ottla.testing.broker import Broker
from tests.cli.schemas.test_decoding import AS_JSON, AVRO, JSON_SCHEMA, PROTO, PROTO_AS_JSON, PROTO_ORDER, encoded
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
    with console_of(broker.bootstrap_server, schemas=make_page_schemas(args(**options))) as visitor:
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


def produced(visitor: Visitor, topic: str, status: int = 200, **fields: str) -> str:
    return visitor.act(f"/topics/{topic}/messages", f"/do/topics/{topic}/produce", status, **fields)


def values(visitor: Visitor, topic: str) -> list[bytes]:
    found = records(visitor, topic)
    return [visitor.http.get(f"/topics/{topic}/value?partition=0&offset={one['offset']}").content for one in found]


@pytest.fixture
def written(broker: Broker) -> str:
    """A new topic."""
    return broker.create_topic(f"written-{uuid.uuid4().hex[:8]}", 1)


def test_a_value_is_written_by_a_schema_of_the_form(broker: Broker, written: str) -> None:
    with console(broker) as visitor:
        page = visitor.get(f"/topics/{written}/messages")
        assert "by this Avro schema" in page and "registry" not in page and "schema file" not in page
        produced(visitor, written, value=json.dumps(AS_JSON), way="avro", schema=json.dumps(AVRO))
        produced(visitor, written, value=json.dumps(PROTO_AS_JSON), way="protobuf", schema=PROTO)
        produced(visitor, written, value='{"reason": "apples"}', way="protobuf", schema=PROTO, message="Refund")
        produced(visitor, written, value='{"amount": 10}', way="json", schema=json.dumps(JSON_SCHEMA))
        assert values(visitor, written) == [encoded(), PROTO_ORDER, b"\x0a\x06apples", b'{"amount": 10}']
        produced(visitor, written, value="{", is_null="yes", way="json", schema=json.dumps(JSON_SCHEMA))
        assert records(visitor, written)[4]["kind"] == "null"


def test_the_message_of_an_avro_schema_is_refused_in_one_sentence(broker: Broker, schemas: list[str]) -> None:
    with console(broker, schema=schemas) as visitor:
        page = produced(visitor, "avro", 400, way="file", value="{}", message="Order")
        assert "the message is for Protobuf; nothing was written." in page


def test_a_value_is_written_by_the_file_of_its_topic(broker: Broker, schemas: list[str], written: str) -> None:
    with console(broker, schema=[f"{written}={schemas[1].removeprefix('proto=')}"], message=[f"{written}=Refund"]) as visitor:
        produced(visitor, written, value='{"reason": "apples"}', way="file")
        produced(visitor, written, value=json.dumps(PROTO_AS_JSON), way="file", message="shop.Order")
        assert values(visitor, written) == [b"\x0a\x06apples", PROTO_ORDER]


def test_a_value_is_written_by_a_schema_of_the_registry(broker: Broker, registry: Registry, written: str) -> None:
    registry.subjects[f"{written}-value"] = [1]
    with console(broker, registry=registry.url) as visitor:
        produced(visitor, written, value=json.dumps(AS_JSON), way="registry")
        produced(visitor, written, value='{"reason": "apples"}', way="registry", schema=" 2 ", message="Refund")
        assert values(visitor, written) == [FRAMED, header(2, (1,)) + b"\x0a\x06apples"]
        assert json.loads(records(visitor, written)[0]["value"]) == AS_JSON


def test_a_decoded_record_is_written_again_with_the_same_bytes(
    broker: Broker, registry: Registry, schemas: list[str], written: str
) -> None:
    def again(visitor: Visitor, topic: str, **fields: str) -> None:
        at = f"/topics/{topic}/record?partition=0&offset=0"
        page = visitor.get(at)
        for name in ("way", "schema"):
            field = re.search(rf'<(select|textarea)[^>]* name="{name}"[^>]*>(.*?)</\1>', page, re.DOTALL)
            assert field
            chosen = re.search(r'value="([^"]*)" selected', field[2])
            fields[name] = (chosen[1] if chosen else field[2]).strip()
        shown = visitor.json(f"{at.replace('/record', '/record.json')}")["record"]["value"]
        visitor.act(at, f"/do/topics/{topic}/produce", value=shown, **fields)

    with console(broker, registry=registry.url) as visitor, Cluster(broker.bootstrap_server) as cluster:
        write(cluster, written, FRAMED)
        again(visitor, written)
        assert values(visitor, written) == [FRAMED, FRAMED]
        broker.create_topic(other := f"other-{written}", 1)
        write(cluster, other, header(2, (1,)) + b"\x0a\x06apples")  # the form would write the first message
        assert "by schema 2" in visitor.get(f"/topics/{other}/record?partition=0&offset=0")
        assert "Write a record" not in visitor.get(f"/topics/{other}/record?partition=0&offset=0")
    file = schemas[0].removeprefix("avro=")
    with console(broker, schema=[f"{written}-2={file}"]) as visitor, Cluster(broker.bootstrap_server) as cluster:
        broker.create_topic(f"{written}-2", 1)
        write(cluster, f"{written}-2", encoded())
        again(visitor, f"{written}-2")
        assert values(visitor, f"{written}-2") == [encoded(), encoded()]


def test_a_value_that_cannot_be_written_is_a_sentence_and_the_form_stays(broker: Broker, registry: Registry, written: str) -> None:
    avro = json.dumps(AVRO)
    refusals: list[tuple[dict[str, str], str]] = [
        ({"way": "avro", "schema": avro, "value": "{<b>"}, "The value does not fit the schema: it is not JSON: "),
        ({"way": "avro", "schema": avro, "value": '{"item": 5}'}, "The value does not fit the schema: "),
        ({"way": "avro", "schema": avro, "value": "[" * 100_000}, "The value does not fit the schema: it is not JSON"),
        ({"way": "avro", "schema": "{", "value": "{}"}, "There is no schema to write the value by: the text is not an Avro schema"),
        ({"way": "avro", "value": "{}"}, "There is no schema to write the value by: the schema is empty"),
        ({"way": "json", "schema": json.dumps(JSON_SCHEMA), "value": "{}"}, "&#39;amount&#39; is a required property"),
        ({"way": "json", "schema": "{}", "value": "{}", "message": "Order"}, "to write the value by: the message is for Protobuf"),
        ({"way": "protobuf", "schema": "message Order {", "value": "{}"}, "the text is not a Protobuf schema: "),
        ({"way": "protobuf", "schema": PROTO, "value": "{}", "message": "Bill"}, "has no message &#39;Bill&#39;; there are Order, Refund"),
        ({"way": "protobuf", "schema": 'syntax = "proto3"; import "../etc/passwd";', "value": "{}"}, "is not a Protobuf schema: "),
        ({"way": "registry", "value": "{}"}, f"/subjects/{written}-value/versions/latest answers 404"),
        ({"way": "registry", "schema": "77", "value": "{}"}, "/schemas/ids/77 answers 404"),
        ({"way": "registry", "schema": "x", "value": "{}"}, "&#39;x&#39; is no id of a schema in the registry"),
        ({"way": "odd", "value": "{}"}, "&#39;odd&#39; is no way to write a value"),
    ]
    with console(broker, registry=registry.url) as visitor:
        for fields, sentence in refusals:
            page = produced(visitor, written, 400, **fields)
            assert sentence in page and "; nothing was written." in page
            form = html.unescape(page.partition('<details class="action" open>')[2])
            assert fields["value"] in form
            assert f'value="{fields["way"]}" selected' in form or fields["way"] == "odd"
        assert values(visitor, written) == []
        fields = visitor.hidden(page, f"/do/topics/{written}/produce")
        visitor.post(f"/do/topics/{written}/produce", {**fields, "value": "as text"})
        assert values(visitor, written) == [b"as text"]
    with console(broker, registry="http://127.0.0.1:9") as visitor:
        assert "no schema registry at http://127.0.0.1:9" in produced(visitor, written, 400, way="registry", value="{}")


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
        make_page_schemas(args(schema=[schemas[0], schemas[0]]))
