"""Documents from files and HTTPS addresses: who may vouch for a host, and what is too large, elsewhere or no HTTP."""

from __future__ import annotations

import ssl
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from ottla.adapters import documents
from ottla.adapters.documents import DOCUMENT_BYTES_MAX, read_document
from tests.fakes.https_server import HttpsServer


def patient(*address: object, **options: object) -> HTTPSConnection:
    """A connection that itself waits long."""
    return HTTPSConnection(*address, **{**options, "timeout": 60})


@pytest.fixture
def server(tmp_path: Path) -> HttpsServer:
    return HttpsServer(tmp_path)


def test_a_document_at_an_address(server: HttpsServer) -> None:
    with server.serving({"/keys?v=1": b"the keys", "/": b"root"}):
        assert read_document(f"{server.url}/keys?v=1", server.authorities) == b"the keys"
        assert read_document(server.url, server.authorities) == b"root"


def test_only_the_given_authorities_vouch_for_a_host(server: HttpsServer) -> None:
    with server.serving({"/keys": b"the keys"}), pytest.raises(ssl.SSLCertVerificationError):
        read_document(f"{server.url}/keys", None)


def test_another_host_name_is_refused(server: HttpsServer) -> None:
    with server.serving({"/keys": b"the keys"}), pytest.raises(ssl.SSLCertVerificationError):
        read_document(f"{server.url.replace('127.0.0.1', 'localhost')}/keys", server.authorities)


def test_answers_that_are_no_document(server: HttpsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with server.serving({"/large": b"a" * (DOCUMENT_BYTES_MAX + 1), "/moved": "/keys", "/keys": b"the keys"}):
        for path, reason in (("/large", "more than"), ("/moved", "HTTP status 302"), ("/nowhere", "HTTP status 404")):
            with pytest.raises(OSError, match=reason):
                read_document(server.url + path, server.authorities)
        monkeypatch.setattr(documents, "TIMEOUT_S", 0.0)
        monkeypatch.setattr(documents, "HTTPSConnection", patient)
        with pytest.raises(OSError, match="longer than"):
            read_document(f"{server.url}/keys", server.authorities)


def test_files_and_what_is_neither(tmp_path: Path) -> None:
    path = tmp_path / "a b.json"
    path.write_bytes(b"the keys")
    assert read_document(f"file://{tmp_path}/a%20b.json", None) == b"the keys"
    path.write_bytes(b"a" * (DOCUMENT_BYTES_MAX + 1))
    with pytest.raises(OSError, match="more than"):
        read_document(f"file://{path}", None)
    for address in ("http://127.0.0.1/", "keys.json", "https://", f"file://{tmp_path}/nothing"):
        with pytest.raises(OSError):
            read_document(address, None)
