"""`produce --schema`: what fits, what does not and where, and schemas that are refused because of unknown keywords."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.command import UsageError
from ottla.cli.schemas.formats import Misfit
from ottla.cli.schemas.json_schema import Schema
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla

ORDER = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["id", "lines"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "state": {"enum": ["new", "paid"]},
        "code": {"type": ["string", "null"], "pattern": "^[A-Z]+$", "maxLength": 4},
        "lines": {"type": "array", "minItems": 1, "items": {"type": "object", "properties": {"price": {"exclusiveMinimum": 0}}}},
    },
}


@pytest.mark.parametrize(
    ("value", "misfit"),
    [
        ({"id": 1, "lines": [{}]}, ""),
        ({"id": 1.0, "lines": [{"price": 0.5}], "state": "paid", "code": None}, ""),
        ({"id": 1}, "value has no 'lines'"),
        ({"id": True, "lines": [{}]}, "value.id is not integer"),
        ({"id": 0, "lines": [{}]}, "value.id is not at least 1"),
        ({"id": 1, "lines": []}, "value.lines is not as long as 1"),
        ({"id": 1, "lines": [{}, {"price": 0}]}, "value.lines[1].price is not above 0"),
        ({"id": 1, "lines": [{}], "state": "lost"}, 'value.state is not one of ["new", "paid"]'),
        ({"id": 1, "lines": [{}], "code": "ABCDE"}, "value.code is not as short as 4"),
        ({"id": 1, "lines": [{}], "code": "a"}, 'value.code is not of the form "^[A-Z]+$"'),
        ({"id": 1, "lines": [{}], "more": 1}, "value.more is not allowed"),
        ([], "value is not object"),
    ],
)
def test_values(value: Any, misfit: str) -> None:
    schema = Schema(json.dumps(ORDER), "order.json")
    data = json.dumps(value).encode()
    if not misfit:
        schema.check(data)
        return
    with pytest.raises(Misfit) as refused:
        schema.check(data)
    assert str(refused.value) == misfit


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "a schema is an object"),
        ('{"oneOf": []}', "the keyword 'oneOf' is not offered"),
        ('{"properties": {"a": {"$ref": "#"}}}', "s.json at /a: the keyword '$ref' is not offered"),
        ('{"type": "text"}', "no type 'text'"),
        ('{"pattern": "("}', "is not a regular expression"),
    ],
)
def test_schemas_that_are_not_understood(schema: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        Schema(schema, "s.json")
    assert message in str(refused.value)


def test_produce_stops_at_the_first_misfit(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    schema, lines = tmp_path / "order.json", tmp_path / "lines"
    schema.write_text(json.dumps(ORDER))
    lines.write_text('{"id": 1, "lines": [{}]}\n{"id": 0, "lines": [{}]}\n')
    result = ottla("produce", topic, "--file", lines, "--schema", schema)
    assert result.code == 1 and result.err == "error: line 2 does not fit the schema: value.id is not at least 1\n"
    assert [record.value for record in broker.records(topic)] == [b'{"id": 1, "lines": [{}]}']
    lines.write_text("k:no json\n")
    assert (
        "line 1 does not fit the schema: it is not JSON: 'no json'"
        in ottla("produce", topic, "-l", lines, "-K", ":", "--schema", schema).err
    )
    lines.write_text("k:\n")
    assert ottla("produce", topic, "-l", lines, "-K", ":", "-Z", "--schema", schema).code == 0, "a tombstone has no schema"
    assert broker.records(topic)[-1].value is None


def test_other_keywords_are_checked_where_jsonschema_is(ottla: Ottla, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, lines = tmp_path / "order.json", tmp_path / "lines"
    schema.write_text('{"multipleOf": 5}')
    lines.write_text("10\n7\n")
    produce = ("produce", topic, "-l", lines, "--schema", schema)
    assert ottla(*produce).err == "error: line 2 does not fit the schema: $: 7 is not a multiple of 5\n"
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    result = ottla(*produce)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "the keyword 'multipleOf' is not offered" in result.err and "pip install jsonschema" in result.err
