"""TLS and HTTP at a door of Kafka's: the mistake and the name are said, and nothing that is sent can do harm."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.strangers import NAME_CHARACTERS_MAX, http_host, server_name, what_came
from ottla.testing.broker import Broker


def hello(name: str | None) -> bytes:
    """What a real client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def test_a_tls_client_is_told_by_its_name() -> None:
    assert server_name(hello("kafka.example")) == "kafka.example"
    assert what_came(hello("kafka.example")).startswith("a client came by the name kafka.example and speaks TLS")


def test_a_tls_client_without_a_name() -> None:
    assert server_name(hello(None)) == ""
    assert what_came(hello(None)).startswith("a client came and speaks TLS")


@pytest.mark.parametrize("size", [2, 5, 6, 43, 44, 60, 120])
def test_a_hello_that_is_cut_short_is_still_one(size: int) -> None:
    assert "speaks TLS" in what_came(hello("kafka.example")[:size])


def test_http_is_told_by_its_host() -> None:
    request = b"GET /metrics HTTP/1.1\r\nAccept: */*\r\nHost: kafka.example:9092\r\n\r\n"
    assert http_host(request) == "kafka.example:9092"
    assert "by the name kafka.example:9092 and speaks HTTP" in what_came(request)
    assert "somebody came and speaks HTTP" in what_came(b"POST /")


def test_names_are_shown_harmless_and_short() -> None:
    assert http_host(b"GET / HTTP/1.1\r\nHost: a\x1b[2J\xff\r\n") == "a?[2J\ufffd"
    assert len(http_host(b"GET / HTTP/1.1\r\nHost: " + b"x" * 5000)) == NAME_CHARACTERS_MAX


@given(st.binary(max_size=300))
def test_nothing_that_is_sent_breaks_it(data: bytes) -> None:
    assert isinstance(what_came(data), str)
    assert isinstance(what_came(b"\x16\x03\x01\x00\x20\x01" + data), str)


def test_a_frame_of_kafkas_is_no_stranger() -> None:
    assert what_came(b"\x00\x00\x00\x01\x00\x12") == ""


def test_the_brokers_log_says_it(tmp_path: Path) -> None:
    with Broker(settings={"ottla.log.format": "text"}) as broker:
        host, _, port = broker.direct_server.rpartition(":")
        for said in (hello("kafka.example"), b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n", b"\x7f\xff\xff\xff"):
            with socket.create_connection((host, int(port)), timeout=10) as sock:
                sock.sendall(said)
                assert sock.recv(10) == b""
        assert "came by the name kafka.example and speaks TLS" in broker.log
        assert "came by the name other.example and speaks HTTP" in broker.log
        assert "a frame of 2147483647 bytes is outside" in broker.log
