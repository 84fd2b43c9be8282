"""What connections hold counts, and at the bound those that are slow or take nothing go first (I46)."""

from __future__ import annotations

from ottla.server.held_memory import ConnectionLimits, HeldMemory
from ottla.server.receive_buffer import (
    POOLED_BUFFERS_MAX,
    POOLED_BYTES,
    RIPE_TICKS,
    SHARED_BYTES,
    STILL_TICKS_MAX,
    LargeFrame,
    ReceiveBuffers,
)
from tests.server.connection_world import LIMITS, World, feed_all, frame, shares


def test_buffers_of_ordinary_large_frames_are_used_again() -> None:
    buffers = ReceiveBuffers()
    first = LargeFrame(buffers, 1 << 20, memoryview(b"x" * SHARED_BYTES))
    first.release()
    assert LargeFrame(buffers, 1 << 20, memoryview(b"y" * SHARED_BYTES)).buffer is first.buffer


def test_hundreds_of_frames_that_begin_at_once_do_not_get_a_pooled_buffer_each() -> None:
    """600 connections that sent 17 kB of a frame had 60 of them made in one turn of the loop: 56 ms."""
    buffers = ReceiveBuffers()
    frames = [LargeFrame(buffers, 1 << 20, memoryview(b"x" * 17_000)) for _ in range(600)]
    assert sum(len(frame.buffer) == POOLED_BYTES for frame in frames) <= POOLED_BUFFERS_MAX + 1
    assert len(frames[-1].buffer) < 1.1 * frames[-1].filled, "pages that may never be written"
    last = frames[-1]
    growths = 0
    while not last.is_whole():
        last.filled += len(last.room())
        growths += 1
    assert growths <= 4, "one that comes grows by large steps"


def test_i46_large_frames_share_one_bound_and_all_come_through() -> None:
    buffers, worlds = shares(3 << 20, 6)
    peak = 0
    lend = buffers.lend

    def watched(size: int) -> bytearray:
        nonlocal peak
        made = lend(size)
        peak = max(peak, buffers.bytes_lent)
        return made

    buffers.lend = watched  # type: ignore[method-assign]
    body = b"z" * (2 << 20)
    feed_all([(worlds[number], frame(body)) for number in range(2)])
    assert [len(world.executor.frames) for world in worlds[:2]] == [1, 1]
    assert buffers.bytes_lent == 0 and peak <= (3 << 20) + (2 << 20), "both the old and the new buffer are there while one grows"
    assert all(world.channel.is_reading for world in worlds)


def test_i46_a_frame_larger_than_the_bound_comes_when_it_is_alone() -> None:
    buffers, (world,) = shares(1 << 20, 1)
    feed_all([(world, frame(b"z" * (3 << 20)))])
    assert len(world.executor.frames) == 1 and buffers.bytes_lent == 0


def test_i46_a_standstill_ends() -> None:
    buffers, worlds = shares(1 << 20, 4)
    feed_all([(world, frame(b"z" * (3 << 20))) for world in worlds])
    assert [world.executor.frames for world in worlds] == [[]] * 4 and not any(world.channel.is_reading for world in worlds)
    for _ in range(STILL_TICKS_MAX):
        buffers.relieve()
    assert not any(world.channel.is_closed for world in worlds), "they may only be slow"
    buffers.relieve()
    assert sum(world.channel.is_closed for world in worlds) == 1
    assert any(world.channel.is_reading for world in worlds), "others go on with what it had"


def test_i46_silent_peers_with_a_piece_of_a_frame_starve_no_other() -> None:
    buffers, worlds = shares(4 << 20, 201)
    *silent, honest = worlds
    for world in silent:
        world.feed(frame(b"z" * (3 << 20))[:70_000])
    assert buffers.bytes_lent <= 5 << 20, "a piece takes little more than its bytes, and a crowd is cut at the bound"
    for _ in range(RIPE_TICKS):
        buffers.relieve()
    feed_all([(honest, frame(b"honest" * 100_000))])
    assert len(honest.executor.frames) == 1 and not honest.channel.is_closed
    assert sum(world.channel.is_closed for world in silent) > 0


def test_i46_the_slowest_frames_are_dropped_not_those_that_wait() -> None:
    buffers, (slow, quick, waiting) = shares(1 << 20, 3)
    slow.feed(frame(b"z" * (3 << 20))[:70_000])
    quick.feed(frame(b"z" * (3 << 20))[:300_000])
    for _ in range(RIPE_TICKS):
        buffers.relieve()
    feed_all([(waiting, frame(b"w" * 700_000))])
    assert slow.channel.is_closed and not waiting.channel.is_closed
    assert len(waiting.executor.frames) == 1


def test_i46_pieces_of_small_frames_starve_no_large_one() -> None:
    buffers, worlds = shares(1 << 20, 21)
    *silent, honest = worlds
    buffers.holders = lambda: [world.connection for world in worlds]
    for world in silent:
        world.feed(frame(b"z" * 60_000)[:50_000])
    for _ in range(RIPE_TICKS):
        buffers.relieve()
    feed_all([(honest, frame(b"honest" * 20_000))])
    assert len(honest.executor.frames) == 1 and not honest.channel.is_closed
    assert 0 < sum(world.channel.is_closed for world in silent) < 15, "no more than there must be"


def test_i46_a_slow_line_is_not_dropped_for_those_who_only_drip() -> None:
    """What they sent at first was more in each tick than a slow line takes."""
    buffers, worlds = shares(1 << 20, 23)
    *dripping, honest = worlds
    buffers.holders = lambda: [world.connection for world in worlds]
    for world in dripping:
        world.feed(frame(b"z" * 60_000)[:48_000])
    data = frame(b"honest" * 20_000)
    for at in range(0, len(data), 4_000):
        honest.feed(data[at : at + 4_000])
        buffers.relieve()
        for world in dripping:
            if not world.channel.is_closed:
                world.feed(b"z")
    assert len(honest.executor.frames) == 1 and not honest.channel.is_closed
    assert sum(world.channel.is_closed for world in dripping) > 0


def test_i46_a_piece_of_a_small_frame_stays_as_old_as_it_is() -> None:
    buffers, (world,) = shares(1 << 20, 1)
    data = frame(b"z" * 60_000)
    world.feed(data[:50_000])
    for at in range(50_000, 50_003):
        buffers.relieve()
        world.feed(data[at : at + 1])
    assert world.connection.held_since_tick == 0
    world.feed(data[50_003:] + data[:10])
    assert world.connection.held_since_tick == buffers.tick, "the next request began now"
    world.feed(data[10:])
    buffers.relieve()
    world.feed(data[:10])
    assert world.connection.held_since_tick == buffers.tick


def test_i46_a_large_frame_goes_on_when_small_ones_have_made_room() -> None:
    buffers, (holder, waiting) = shares(100_000, 2)
    holder.feed(frame(b"z" * 60_000)[:50_000])
    feed_all([(waiting, frame(b"w" * 200_000))])
    assert not waiting.channel.is_reading
    holder.feed(frame(b"z" * 60_000)[50_000:])
    buffers.relieve()
    assert waiting.channel.is_reading


def test_i46_pieces_of_small_frames_count() -> None:
    buffers, (world,) = shares(1 << 20, 1)
    world.feed(frame(b"z" * 50_000)[:30_000])
    assert buffers.bytes_lent == 30_000 == world.connection.held_bytes
    world.feed(frame(b"z" * 50_000)[30_000:])
    assert buffers.bytes_lent == 0 and len(world.executor.frames) == 1
    world.feed(frame(b"z" * 50_000)[:30_000])
    world.channel.close()
    assert buffers.bytes_lent == 0


def test_i46_answers_that_are_not_taken_count_together() -> None:
    limits = ConnectionLimits(frame_bytes_max=4 << 20, in_flight_max=8, queued_bytes_max=1 << 30, held=HeldMemory(100_000))
    stuck, slow, small = (World(limits) for _ in range(3))
    for world, size in ((slow, 50_000), (stuck, 45_000), (small, 2_000)):
        world.channel.queued_bytes = size
        world.feed(frame(b"ask-------"))
    slow.channel.bytes_sent += 1_000
    assert limits.held.total_bytes == 97_000
    small.channel.queued_bytes = 12_000
    small.feed(frame(b"ask-------"))
    assert stuck.channel.is_closed, "its peer has taken nothing"
    assert not slow.channel.is_closed and not small.channel.is_closed
    assert limits.held.total_bytes == 62_000
    slow.channel.queued_bytes = 0
    slow.connection.drained()
    assert limits.held.total_bytes == 12_000


def test_i46_a_peer_that_goes_gives_its_room_back() -> None:
    buffers, (world,) = shares(4 << 20, 1)
    world.feed(frame(b"z" * (3 << 20))[: 1 << 20])
    assert buffers.bytes_lent > 0
    world.channel.close()
    assert buffers.bytes_lent == 0


def test_i46_answers_that_wait_for_another_count() -> None:
    world = World()
    world.feed(frame(b"later-----") + frame(b"a" * 60_000) + frame(b"b" * 60_000) + frame(b"third-----"))
    assert len(world.executor.frames) == 3 and not world.channel.is_reading
    world.connection.fill(world.executor.slots[0], [b"NOW"])
    assert world.channel.is_reading and world.channel.sent == b"NOW" + b"a" * 60_000 + b"b" * 60_000 + b"third-----"


def test_i46_requests_that_wait_count() -> None:
    world = World()
    slot = world.connection.reserve(LIMITS.queued_bytes_max)
    world.feed(frame(b"second----"))
    assert world.executor.frames == [] and not world.channel.is_reading
    world.connection.fill(slot, [b"FIRST"])
    assert world.channel.is_reading and world.channel.sent == b"FIRSTsecond----"


def test_i46_requests_that_wait_count_together() -> None:
    limits = ConnectionLimits(frame_bytes_max=4 << 20, in_flight_max=8, queued_bytes_max=1 << 30, held=HeldMemory(100_000))
    small, large = World(limits), World(limits)
    small.connection.reserve(30_000)
    large.connection.reserve(71_000)
    small.feed(frame(b"later-----"))
    assert large.channel.is_closed and not small.channel.is_closed
    assert limits.held.total_bytes == 30_000
