"""The page of rights: its counts, and the answers of this broker in each row. `tools/compare_rights.py` compares them with Kafka's."""

from __future__ import annotations

import re
from contextlib import closing
from typing import NamedTuple

from ottla.handlers.served_apis import TABLE
from ottla.testing import Broker
from ottla.wire.framing import load
from tests.docs.pages import DOCS
from tools.compare_rights import KNOWN, SETTINGS, STANDARD_AUTHORIZER, Side, choices, codes, makers, words_of

PAGES = ("rights.md", "tools.md")
COUNTS = re.compile(r"Of (\d+) requests of (\d+) APIs (\d+)\s+are\s+answered alike")
ROW = re.compile(r"^\| (\w+) v(\d+)(?:, request (\d+))? \| (.+?) \| (.+?) \| (.+) \|$", re.M)
SAME = "the same"


class Row(NamedTuple):
    """A request of a client with some rights, and the answers of both brokers."""

    api: str
    version: str
    number: str
    rights: str
    theirs: str
    ours: str

    @property
    def expected(self) -> str:
        """The codes that this broker answers."""
        return self.theirs if self.ours == SAME else self.ours.partition(":")[0]


ROWS = [Row(*found) for found in ROW.findall((DOCS / "rights.md").read_text(encoding="utf-8"))]


def test_the_counts_are_those_of_the_table() -> None:
    counted = [str(len(ROWS)), str(len({row.api for row in ROWS})), str(sum(row.ours == SAME for row in ROWS))]
    for page in PAGES:
        assert [list(found) for found in COUNTS.findall((DOCS / page).read_text(encoding="utf-8"))] == [counted], page


def reason(row: Row) -> str | None:
    return KNOWN.get((row.api, row.rights if row.rights == "none" else row.rights.upper())) or KNOWN.get((row.api, "*"))


def test_each_difference_has_its_known_reason() -> None:
    assert [row for row in ROWS if row.ours != SAME and row.ours.partition(": ")[2] != reason(row)] == []


def test_this_broker_answers_as_the_page_says() -> None:
    load(0)
    apis = {api.name: api for api in TABLE.values()}
    settings = dict(setting.split("=", 1) for setting in (f"authorizer.class.name={STANDARD_AUTHORIZER}", "node.id=1", *SETTINGS))
    wrong = []
    granted = None
    with Broker(settings=settings) as broker, closing(Side("ottla", int(broker.direct_server.rpartition(":")[2]))) as side:
        for row in ROWS:
            api = apis[row.api]
            if granted != (row.api, row.rights):
                granted = row.api, row.rights
                assert side.grant({words_of(rights).lower(): rights for rights in choices(api)}[row.rights])
            answered = codes(side.answer(makers(api)[int(row.number or 1) - 1], int(row.version)))
            if answered != row.expected:
                wrong.append((row, answered))
    assert wrong == []
