"""The examples of docs/spark-features.md, by the headings above them, with topics and addresses of a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ottla.testing.broker import Broker
from tests.docs.pages import DOCS, blocks_of

PAGE = DOCS / "spark-features.md"
CHECKPOINTS, BROKERS = "/var/lib/checkpoints", "localhost:9092"


def examples() -> dict[str, str]:
    """The blocks of Python by heading. The first one, which the others need, has the page's own."""
    text = PAGE.read_text(encoding="utf-8")
    return {text[: block.start].rpartition("\n# ")[2].rpartition("\n## ")[2].partition("\n")[0]: block.text for block in blocks_of(PAGE)}


class FeaturesPage:
    """Runs examples in this process, where Spark's session is. `name` is the topic that they call `orders`, and begins the others."""

    def __init__(self, broker: Broker, directory: Path, name: str) -> None:
        self.broker, self.directory, self.name = broker, directory, name
        self._names: dict[str, Any] = {"__name__": "__main__"}  # so that Spark sends functions and classes to its workers by value
        self._blocks = examples()
        self._run(next(iter(self._blocks.values())))

    def topic(self, suffix: str = "") -> str:
        return self.broker.create_topic(self.name + suffix, partitions=2)

    def run(self, heading: str) -> None:
        self._run(self._blocks[heading])

    def _run(self, text: str) -> None:
        exec(compile(self.moved(text), str(PAGE), "exec"), self._names)

    def moved(self, text: str) -> str:
        for old, new in (("orders", self.name), (CHECKPOINTS, str(self.directory)), (BROKERS, self.broker.direct_server)):
            text = text.replace(old, new)
        return text
