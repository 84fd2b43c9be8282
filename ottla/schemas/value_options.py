"""The options of typed values, which frames and Spark share. Needs no third-party package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.schemas.errors import SchemaUsageError

FORMATS = ("json", "avro", "protobuf")
FAIL, NULL = "fail", "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """The options as given: `schema` is the text of a schema or the path of a file, `registry` a URL, `message` the name of a Protobuf
    message. `errors` is what happens to a value that does not fit: `fail`, `null`, or the name of a topic. The URL may contain a
    password, so it is not printed."""

    format: str
    schema: str = ""
    registry: str = field(default="", repr=False)
    message: str = ""
    errors: str = FAIL


def check_options(options: ValueOptions, names: Mapping[str, str], *, needs_schema: bool) -> None:
    """Raises `SchemaUsageError` for options that contradict each other. `names` has the caller's names of the options."""
    if options.format not in FORMATS:
        raise SchemaUsageError(f"{options.format!r} is none of {', '.join(FORMATS)}", names["format"])
    if options.message and options.format != "protobuf":
        raise SchemaUsageError("only a Protobuf schema has messages", names["message"])
    if needs_schema and not options.schema and not options.registry:
        raise SchemaUsageError(f"missing; {names['format']}={options.format} needs a schema (its text or a file), or a registry", "schema")
