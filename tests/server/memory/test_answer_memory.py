"""The memory of unsent answers and waiting requests is limited for each connection and for all together. At the limit, connections of the
address with the most memory are closed first (I46)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.server.answer_queue import AnswerQueue
from ottla.server.memory.answer_memory import AnswerMemory, ConnectionLimits
from ottla.storage.file_slice import BytesFile, FileSlice, SharedFile
from tests.server.connection_world import FakeChannel


class Peer:
    """A connection and its channel."""

    def __init__(self, memory: AnswerMemory, host: str = "10.0.0.1") -> None:
        self.channel: Any = self
        self.bytes_sent = 0
        self.unsent = 0
        self.is_closed = False
        self.account = memory.open(self.channel, host)

    def unsent_bytes(self) -> int:
        return self.unsent

    def close(self) -> None:
        self.is_closed = True
        self.account.close()

    def wait_for(self, size: int) -> None:
        """Adds answers that this peer has not taken yet."""
        self.unsent = size
        self.account.note_unsent()


@pytest.fixture
def memory() -> AnswerMemory:
    return AnswerMemory(100_000)


def test_i46_waiting_requests_count_together(memory: AnswerMemory) -> None:
    peers = [Peer(memory) for _ in range(4)]
    for peer in peers:
        peer.account.park(24_000)
    peers[0].account.park(2_000)
    memory.relieve()
    assert not any(peer.is_closed for peer in peers)
    peers[3].account.park(10_000)
    memory.relieve()
    assert [peer.is_closed for peer in peers] == [False, False, False, True], "the largest"
    assert memory.total_bytes == 74_000


def test_i46_an_address_is_relieved_before_others(memory: AnswerMemory) -> None:
    """Many connections of one address use little memory each. A client of another address uses more than any one of them."""
    crowd = [Peer(memory, "10.0.0.2") for _ in range(20)]
    single = Peer(memory)
    single.account.park(20_000)
    for peer in crowd:
        peer.account.park(5_000)
    memory.relieve()
    assert not single.is_closed and sum(peer.is_closed for peer in crowd) == 7
    assert memory.total_bytes <= 100_000 * 7 // 8


def test_i46_peers_that_take_nothing_go_before_those_that_wait(memory: AnswerMemory) -> None:
    waiting, slow, stuck = (Peer(memory) for _ in range(3))
    waiting.account.park(50_000)
    slow.wait_for(30_000)
    stuck.wait_for(15_000)
    slow.bytes_sent += 1
    waiting.account.park(10_000)
    memory.relieve()
    assert stuck.is_closed and not slow.is_closed
    assert waiting.is_closed, "the larger of those that move"


def test_what_peers_have_taken_meanwhile_is_counted_again(memory: AnswerMemory) -> None:
    peer = Peer(memory)
    peer.wait_for(90_000)
    peer.unsent = 20_000
    peer.account.park(20_000)
    memory.relieve()
    assert not peer.is_closed and memory.total_bytes == 40_000
    peer.account.note_taken()
    peer.account.park(-20_000)
    assert memory.total_bytes == 0


def test_what_a_closed_connection_gives_back_counts_once(memory: AnswerMemory) -> None:
    peer = Peer(memory)
    peer.account.park(10_000)
    peer.wait_for(10_000)
    peer.close()
    peer.account.park(-10_000)
    peer.account.note_unsent()
    peer.account.note_taken()
    assert memory.total_bytes == 0


def test_i46_slices_of_files_behind_a_waiting_request_do_not_count(memory: AnswerMemory) -> None:
    """Formerly slices in answers to pipelined fetches were charged with their length, so connections were closed although little memory was
    in use."""
    limits = ConnectionLimits(frame_bytes_max=1000, in_flight_max=10, queued_bytes_max=1_000_000, memory=memory)
    channel = FakeChannel()
    answers = AnswerQueue(channel, limits, "10.0.0.1")
    piece = FileSlice(SharedFile(BytesFile(b"", "x")), 0, 200_000)
    waiting, later = answers.reserve(100), answers.reserve(300)
    answers.add([b"head", piece])
    answers.fill(later, [b"first", piece])
    assert memory.total_bytes == 100 + len(b"head") + len(b"first")
    answers.fill(waiting, [])
    assert memory.total_bytes == 0 and answers.out_bytes == 2 * 200_000 + len(b"headfirst")
