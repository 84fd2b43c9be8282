"""TLS and HTTP on a listener of Kafka's protocol: the log names the mistake and the host name, and no bytes can do harm."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.foreign_protocols import NAME_CHARACTERS_MAX, foreign_protocol, http_host, server_name
from ottla.testing.broker import Broker


def hello(name: str | None) -> bytes:
    """The first bytes of a real client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def test_a_tls_client_with_a_server_name() -> None:
    assert server_name(hello("kafka.example")) == "kafka.example"
    assert foreign_protocol(hello("kafka.example")).startswith("a client connected by the name kafka.example and speaks TLS")


def test_a_tls_client_without_a_name() -> None:
    assert server_name(hello(None)) == ""
    assert foreign_protocol(hello(None)).startswith("a client connected and speaks TLS")


@pytest.mark.parametrize("size", [2, 5, 6, 43, 44, 60, 120])
def test_a_hello_that_is_cut_short_is_still_one(size: int) -> None:
    assert "speaks TLS" in foreign_protocol(hello("kafka.example")[:size])


def test_an_http_client_with_its_host() -> None:
    request = b"GET /metrics HTTP/1.1\r\nAccept: */*\r\nHost: kafka.example:9092\r\n\r\n"
    assert http_host(request) == "kafka.example:9092"
    assert "by the name kafka.example:9092 and speaks HTTP" in foreign_protocol(request)
    assert "a client connected and speaks HTTP" in foreign_protocol(b"POST /")


def test_names_are_shown_harmless_and_short() -> None:
    assert http_host(b"GET / HTTP/1.1\r\nHost: a\x1b[2J\xff\r\n") == "a?[2J\ufffd"
    assert len(http_host(b"GET / HTTP/1.1\r\nHost: " + b"x" * 5000)) == NAME_CHARACTERS_MAX


@given(st.binary(max_size=300))
def test_nothing_that_is_sent_breaks_it(data: bytes) -> None:
    assert isinstance(foreign_protocol(data), str)
    assert isinstance(foreign_protocol(b"\x16\x03\x01\x00\x20\x01" + data), str)


def test_a_frame_of_kafkas_protocol_is_none() -> None:
    assert foreign_protocol(b"\x00\x00\x00\x01\x00\x12") == ""


def test_the_broker_logs_it(tmp_path: Path) -> None:
    with Broker(settings={"ottla.log.format": "text"}) as broker:
        host, _, port = broker.direct_server.rpartition(":")
        for said in (hello("kafka.example"), b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n", b"\x7f\xff\xff\xff"):
            with socket.create_connection((host, int(port)), timeout=10) as sock:
                sock.sendall(said)
                assert sock.recv(10) == b""
        assert "connected by the name kafka.example and speaks TLS" in broker.log
        assert "connected by the name other.example and speaks HTTP" in broker.log
        assert "a frame of 2147483647 bytes is outside" in broker.log
