"""Scans of batches: they yield every complete batch, and report the exact position of the first invalid one (I1, P11)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ports import File
from ottla.storage import scan
from ottla.storage.scan import DamageError, scan_batches
from ottla.wire.batch_header import iter_batches
from tests.fakes.disk import MemDisk
from tests.storage.log_builder import ROOT, batch_of


def file_of(data: bytes) -> File:
    disk = MemDisk(ROOT)
    disk.write_file(f"{ROOT}/f.log", data)
    return disk.open(f"{ROOT}/f.log")


def run_of(*bases: int, size: int = 10) -> bytes:
    return b"".join(bytes(batch_of(2, value=b"v" * size, base_offset=base)) for base in bases)


@given(st.lists(st.integers(0, 400), max_size=12), st.integers(100, 900))
def test_every_batch_comes_whole_whatever_the_piece_size(sizes: list[int], piece: int) -> None:
    data = b"".join(run_of(2 * number, size=size) for number, size in enumerate(sizes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "SCAN_BYTES", piece)
        walked = scan_batches(file_of(data), 0, len(data), next_offset=0, crc_from=0)
        found = [(position, header, bytes(batch)) for position, header, batch in walked]
    assert found == [(position, header, data[position : position + header.size_bytes]) for position, header in iter_batches(data)]


@given(st.integers(1, 299))
def test_a_cut_names_the_first_incomplete_batch(lost: int) -> None:
    data = run_of(0, 2, 4)
    size = len(data) // 3
    cut = data[: max(0, len(data) - lost)]
    whole = len(cut) // size
    if len(cut) % size == 0:
        assert len(list(scan_batches(file_of(cut), 0, len(cut), next_offset=0))) == whole
        return
    with pytest.raises(DamageError) as caught:
        list(scan_batches(file_of(cut), 0, len(cut), next_offset=0))
    assert (caught.value.position, caught.value.offset) == (whole * size, whole * 2)


@given(st.integers(0, 3 * len(run_of(0)) - 1), st.integers(1, 255))
def test_any_flipped_byte_but_in_offset_and_epoch_is_noticed(position: int, mask: int) -> None:
    data = bytearray(run_of(0, 2, 4))
    size = len(data) // 3
    data[position] ^= mask
    if position % size < 8 or 12 <= position % size < 16:
        return  # the CRC does not cover base offset and leader epoch
    with pytest.raises(DamageError) as caught:
        list(scan_batches(file_of(bytes(data)), 0, len(data), next_offset=0, crc_from=0))
    assert caught.value.position == position // size * size


@pytest.mark.parametrize("bases", [(0, 1), (0, 0), (4, 2)])
def test_offsets_must_increase(bases: tuple[int, ...]) -> None:
    data = run_of(*bases)
    with pytest.raises(DamageError, match="expected from"):
        list(scan_batches(file_of(data), 0, len(data), next_offset=0))


def test_offsets_must_stay_within_the_segment() -> None:
    data = run_of(0, 2, 4)
    assert len(list(scan_batches(file_of(data), 0, len(data), next_offset=0, offset_max=5))) == 3
    with pytest.raises(DamageError):
        list(scan_batches(file_of(data), 0, len(data), next_offset=0, offset_max=4))


def test_crcs_below_the_given_offset_are_not_looked_at() -> None:
    data = bytearray(run_of(0, 2))
    data[80] ^= 1
    assert len(list(scan_batches(file_of(bytes(data)), 0, len(data), next_offset=0, crc_from=2))) == 2


def test_zeros_are_no_batch() -> None:
    data = run_of(0) + bytes(4096)
    with pytest.raises(DamageError) as caught:
        list(scan_batches(file_of(data), 0, len(data), next_offset=0))
    assert caught.value.offset == 2
