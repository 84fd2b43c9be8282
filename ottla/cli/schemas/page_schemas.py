"""The options about schemas of the console. `optional.py` loads it."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.cli.command import Args, UsageError
from ottla.cli.schemas.record_schemas import as_command_errors
from ottla.console.schemas import Schemas, TopicFile
from ottla.schemas.formats import file_format
from ottla.schemas.registry import Registry


@as_command_errors()
def make_page_schemas(args: Args) -> Schemas:
    """Returns the schemas of the console's options. Raises UsageError for a file that is no schema."""
    files, messages = _pairs("--schema", "FILE", args.schema), _pairs("--message", "NAME", args.message)
    if unknown := sorted(messages.keys() - files.keys()):
        raise UsageError(f"--message goes with --schema {unknown[0]}=FILE")
    formats = {topic: TopicFile(file_format(path), messages.get(topic)) for topic, path in files.items()}
    return Schemas(Registry(args.registry) if args.registry else None, formats)


def _pairs(option: str, what: str, texts: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        topic, _, rest = text.partition("=")
        if not topic or not rest:
            raise UsageError(f"{option} {text!r} is not TOPIC={what}")
        if topic in found:
            raise UsageError(f"{option} names the topic {topic!r} twice")
        found[topic] = rest
    return found
