"""Conversations from packet captures: any order, repeated and lost packets, each kind of file and link."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import WireError
from ottla.cli.captures.conversation import Endpoint, clients_of, is_recording, read_pieces
from tests.cli.inspect.packet_captures import BROKER, CLIENT, SYN, Segment, ethernet, ip_packet, pcap, pcapng


def _sent(recording: bytes) -> bytes:
    return b"".join(piece.data for piece in read_pieces(recording) if piece.source.port == CLIENT[1])


SEGMENTS = [
    Segment(CLIENT, BROKER, 999, b"", SYN),
    Segment(CLIENT, BROKER, 1000, b"abc"),
    Segment(BROKER, CLIENT, 5, b"answer"),
    Segment(CLIENT, BROKER, 1003, b"def"),
    Segment(CLIENT, BROKER, 1006, b"ghi"),
]


@pytest.mark.parametrize("order", ["<", ">"])
def test_both_kinds_of_file_in_both_byte_orders(order: str) -> None:
    packets = [ethernet(segment) for segment in SEGMENTS]
    for recording in (pcap(packets, order=order), pcapng(packets, order=order)):
        assert is_recording(recording)
        assert _sent(recording) == b"abcdefghi"
        assert clients_of(recording) == {Endpoint(*CLIENT)}
        assert [round(piece.seconds, 3) for piece in read_pieces(recording)] == [100.001, 100.002, 100.003, 100.004]


@given(st.permutations(SEGMENTS[1:]))
def test_any_order_and_repeats_give_the_same_bytes(shuffled: list[Segment]) -> None:
    repeated = [SEGMENTS[0], *shuffled, *shuffled]
    assert _sent(pcap([ethernet(segment) for segment in repeated])) == b"abcdefghi"


def test_overlapping_pieces_and_a_sequence_number_that_wraps() -> None:
    start = (1 << 32) - 2
    segments = [Segment(CLIENT, BROKER, start - 1, b"", SYN), Segment(CLIENT, BROKER, start, b"abc")]
    segments += [Segment(CLIENT, BROKER, start + 1, b"bcdef"), Segment(CLIENT, BROKER, start + 6, b"g")]
    assert _sent(pcap([ethernet(segment) for segment in segments])) == b"abcdefg"


def test_nothing_is_given_across_a_gap() -> None:
    segments = [SEGMENTS[0], SEGMENTS[1], SEGMENTS[4]]
    assert _sent(pcap([ethernet(segment) for segment in segments])) == b"abc"


@pytest.mark.parametrize(
    ("link", "prefix"),
    [(101, b""), (0, b"\2\0\0\0"), (113, bytes(14) + b"\x08\0"), (276, b"\x08\0" + bytes(18)), (1, bytes(12) + b"\x81\0\0\1\x08\0")],
)
def test_each_kind_of_link(link: int, prefix: bytes) -> None:
    assert _sent(pcap([prefix + ip_packet(segment) for segment in SEGMENTS], link=link)) == b"abcdefghi"


def test_ipv6() -> None:
    segments = [Segment(("::1", CLIENT[1]), ("::1", 9092), 1, b"six")]
    (piece,) = read_pieces(pcap([ethernet(segment) for segment in segments]))
    assert (piece.data, str(piece.target)) == (b"six", "[::1]:9092")


def test_other_packets_are_passed_over() -> None:
    udp = bytearray(ethernet(SEGMENTS[1]))
    udp[14 + 9] = 17
    arp = bytes(12) + b"\x08\x06" + bytes(28)
    assert _sent(pcap([bytes(udp), arp, b"", ethernet(SEGMENTS[1])])) == b"abc"


@pytest.mark.parametrize("recording", [pcap([b"x"], link=147), pcap([])[:10], pcapng([]) + b"\1\0\0\0\3\0\0\0\0\0\0\0", b"text"])
def test_damage_is_a_wire_error(recording: bytes) -> None:
    with pytest.raises(WireError):
        list(read_pieces(recording))
    with pytest.raises(WireError):
        clients_of(recording)


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_end_in_pieces_or_a_wire_error(data: bytes, is_ng: bool) -> None:
    recording = (pcapng([]) if is_ng else pcap([])) + data
    try:
        clients_of(recording)
        pieces = list(read_pieces(recording))
    except WireError:
        pieces = []
    assert sum(len(piece.data) for piece in pieces) <= len(data)
