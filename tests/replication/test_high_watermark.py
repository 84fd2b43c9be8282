"""The rule of the high watermark against its definition (I11, I12)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.high_watermark import next_high_watermark

offsets = st.integers(-1, 20)


def test_i12_the_slowest_member_decides() -> None:
    assert next_high_watermark(3, own_end=9, remote_ends=[7, 5], in_sync=3, in_sync_min=2) == 5


def test_i12_it_stands_still_below_min_insync() -> None:
    """KIP-966: a record on only one replica is not safe if `min.insync.replicas` is 2."""
    assert next_high_watermark(3, own_end=9, remote_ends=[], in_sync=1, in_sync_min=2) == 3


def test_i11_a_member_that_is_behind_does_not_pull_it_back() -> None:
    assert next_high_watermark(6, own_end=9, remote_ends=[-1], in_sync=2, in_sync_min=1) == 6


@given(st.integers(0, 20), st.integers(0, 20), st.lists(offsets, max_size=4), st.integers(1, 5), st.integers(1, 3))
def test_i11_i12_it_never_falls_and_never_passes_a_member(current: int, own: int, remotes: list[int], in_sync: int, least: int) -> None:
    moved = next_high_watermark(current, own_end=own, remote_ends=remotes, in_sync=in_sync, in_sync_min=least)
    assert moved >= current
    if moved > current:
        assert in_sync >= least and moved == min([own, *remotes])
