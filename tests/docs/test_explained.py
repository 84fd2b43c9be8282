"""The pictures of the pages "Kafka explained": made again where every run shows the same, small, and readable in a narrow window."""

from __future__ import annotations

import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.pages import DOCS
from tools.explained import log_end, record_copies, transaction_steps
from tools.explained_pictures import WIDTH, ReplicaRun, draw_record, draw_replicas, draw_transactions, held, thinned

PICTURES = sorted((DOCS / "assets").glob("explained-*.svg"))
BYTES_MAX = 20_000
NARROW_PX = 350
"""Width of a picture in a window of 400 pixels."""
TEXT_PX_MIN = 8.5


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.stem)
def test_a_picture_is_small_and_readable_in_a_narrow_window(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    drawn = ElementTree.fromstring(text)
    assert float(drawn.attrib["viewBox"].split()[2]) == WIDTH
    assert min(float(size) for size in re.findall(r"(\d+)px", text)) * NARROW_PX / WIDTH > TEXT_PX_MIN
    assert len(text.encode()) < BYTES_MAX
    assert "href" not in text and "url(" not in text


def test_each_page_shows_its_picture() -> None:
    shown = {name for page in DOCS.glob("explained*.md") for name in re.findall(r"assets/(explained-\w+\.svg)", page.read_text())}
    assert shown == {picture.name for picture in PICTURES}
    assert len(shown) == 4


def same_as(name: str, drawn: str) -> bool:
    path = DOCS / "assets" / f"explained-{name}.svg"
    if os.environ.get("OTTLA_REWRITE"):
        path.write_text(drawn, encoding="utf-8")
    return path.read_text(encoding="utf-8") == drawn


def test_the_leader_changes_an_offset_and_an_epoch() -> None:
    copies = record_copies()
    sent, stored, read = (batch for _, batch in copies)
    assert stored == read and len(stored) == 79
    assert [number for number, byte in enumerate(sent) if stored[number] != byte] == [7, 12, 13, 14, 15]
    assert same_as("record", draw_record(copies))


def test_the_last_stable_offset_waits_for_the_open_transaction() -> None:
    steps = transaction_steps()
    assert [step.last_stable_offset for step in steps] == [0, 3, 5, 5, 5, 9]
    assert same_as("transactions", draw_transactions(steps))


def test_a_log_end_does_not_count_what_is_written_in_part(tmp_path: Path) -> None:
    batch = dict(record_copies())["in the log file"]
    assert log_end(tmp_path) == 0
    (tmp_path / "0.log").write_bytes(batch)
    assert log_end(tmp_path) == 2, "the batch has offset 1"
    (tmp_path / "1.log").write_bytes(batch[:-1])
    assert log_end(tmp_path) == 2


@pytest.mark.parametrize(
    ("points", "kept"),
    [
        ([(0, 0), (1, 1), (2, 2)], [(0, 0), (2, 2)]),
        ([(0, 0), (1, 0), (1, 5), (2, 5)], [(0, 0), (1, 0), (1, 5), (2, 5)]),
        ([(0, 0), (4, 0), (4, 4), (0, 0)], [(0, 0), (4, 0), (4, 4), (0, 0)]),
    ],
    ids=["straight", "a step", "closed"],
)
def test_a_line_keeps_its_corners(points: list[tuple[float, float]], kept: list[tuple[float, float]]) -> None:
    assert thinned(points) == kept


def test_a_replica_is_coloured_while_it_is_in_sync() -> None:
    ends = {number: [(0.0, 0.0), (10.0, 100.0)] for number in (1, 2, 3)}
    states = [(0.0, 1, (1, 2, 3)), (5.0, 2, (2, 3))]
    drawn = draw_replicas(ReplicaRun(ends, [(0.0, 0.0), (10.0, 100.0)], states, [(5.0, "broker 1 is killed")], 10.0))
    bars = [found for found in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}rect") if found.attrib["height"] == "20"]
    coloured = [float(bar.attrib["width"]) for bar in bars if bar.attrib["fill"] != "#e2e8f0"]
    assert coloured == pytest.approx([206, 206, 206, 206, 206]), "the first for 5 s, the others in both states"


def test_a_high_watermark_does_not_rise_without_an_answer() -> None:
    assert held([(0.0, 1.0), (0.1, 2.0), (1.0, 9.0)]) == [(0.0, 1.0), (0.1, 2.0), (1.0, 2.0), (1.0, 9.0)]
