"""`ottla log scrub` finds damage in the files of a log, says which offsets it costs, and writes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Ottla
from tests.cli.inspect.segment_files import STEM, batch, make_partition


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with two partitions; the first has two segments."""
    for name in ("t-0", "t-1"):
        make_partition(tmp_path / "data" / name)
    (tmp_path / "data/t-0" / f"{105:020d}.log").write_bytes(batch(105, 1050))
    return tmp_path / "data"


def files(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_sound_logs_are_counted(offline: Ottla, data: Path) -> None:
    before = files(data)
    result = offline("log", "scrub", data)
    assert (result.code, result.out, result.err) == (0, "", "11 batches in 3 segments were checked, 0 places are damaged\n")
    assert files(data) == before


@pytest.mark.parametrize("path", ["", "t-0", f"t-0/{STEM}.log"])
def test_a_flipped_bit_is_shown_with_its_offsets(offline: Ottla, data: Path, path: str) -> None:
    segment = data / "t-0" / f"{STEM}.log"
    flip(segment, 70)
    before = files(data)
    result = offline("log", "scrub", data / path, "-o", "json")
    assert result.code == 1 and files(data) == before
    (found,) = json.loads(result.out)["damage"]
    assert found["file"] == str(segment)
    assert (found["first_offset"], found["last_offset"], found["position"]) == (100, 100, 0)
    assert "CRC" in found["reason"]
    assert f"{segment}  " in offline("log", "scrub", data / path).out


def test_a_missing_end_is_damage_unless_the_log_was_compacted(offline: Ottla, data: Path) -> None:
    (data / "t-0" / f"{105:020d}.log").rename(data / "t-0" / f"{110:020d}.log")
    (data / "t-0" / f"{110:020d}.log").write_bytes(batch(110, 1050))
    (found,) = json.loads(offline("log", "scrub", data, "-o", "json").out)["damage"]
    assert (found["first_offset"], found["last_offset"]) == (105, 109)
    marker = data / "t-0" / f"{110:020d}.compacted"
    marker.touch()
    assert offline("log", "scrub", data).code == 0
    marker.unlink()
    (data / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 110\n")
    assert offline("log", "scrub", data).code == 0


@pytest.mark.parametrize("name", ["nothing", "t-0/partition.metadata", "empty"])
def test_what_is_no_log_is_refused_in_one_line(offline: Ottla, data: Path, name: str) -> None:
    (data / "empty").mkdir()
    result = offline("log", "scrub", data / name)
    assert result.code == 1 and len(result.err.splitlines()) == 1
    assert offline("log", "scrub").code == 2
