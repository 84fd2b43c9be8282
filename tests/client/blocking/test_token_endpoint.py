"""Tokens from an endpoint and from a file: what is asked, what is tried again, and errors that show no secret."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client.blocking.token_endpoint import OauthEndpoint, fetch_token, file_path, file_token, shown
from ottla.client.errors import AuthenticationError, ClientError, ConnectError
from tests.fakes.https_server import HttpsServer
from tests.fakes.issuer import claims_at, unsecured
from tests.fakes.token_endpoint import TokenEndpoint

TOKEN = unsecured(claims_at(1000))


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with TokenEndpoint(lambda: TOKEN).serving() as made:
        yield made


def settings(url: str, **more: Any) -> OauthEndpoint:
    given = {"url": url, "client_id": "app", "client_secret": "s3cr:t&", "extensions": {}, "context": ssl.create_default_context}
    return OauthEndpoint(**{**given, **more})


def test_what_is_asked_and_taken(endpoint: TokenEndpoint) -> None:
    token = fetch_token(settings(f"{endpoint.url}?tenant=1", scope="kafka read", extensions={"pool": "x"}))
    assert (token.text, token.ends_s, token.extensions) == (TOKEN, 1600.0, (("pool", "x"),))
    (asked,) = endpoint.asked
    assert asked.path == "/token?tenant=1" and asked.body == "grant_type=client_credentials&scope=kafka+read"
    assert base64.b64decode(asked.authorization.removeprefix("Basic ")) == b"app:s3cr:t&"


def test_credentials_that_are_encoded(endpoint: TokenEndpoint) -> None:
    fetch_token(settings(endpoint.url, is_urlencoded=True))
    assert base64.b64decode(endpoint.asked[0].authorization.removeprefix("Basic ")) == b"app:s3cr%3At%26"
    assert endpoint.asked[0].body == "grant_type=client_credentials"


def test_an_opaque_token_ends_as_the_endpoint_says(endpoint: TokenEndpoint) -> None:
    endpoint.script.append((200, b'{"access_token":"opaque","expires_in":60}'))
    ends_s = fetch_token(settings(endpoint.url)).ends_s
    assert ends_s is not None and ends_s > 1e9


def test_failures_that_may_pass_are_tried_again(endpoint: TokenEndpoint) -> None:
    waits: list[float] = []
    endpoint.script.extend([(503, b""), (429, b""), (500, b"")])
    assert fetch_token(settings(endpoint.url, backoff_s=0.5, retry_s=1000), waits.append).text == TOKEN
    assert waits == [0.5, 1.0, 2.0] and len(endpoint.asked) == 4
    endpoint.script.append((503, b""))
    with pytest.raises(AuthenticationError, match="HTTP status 503"):
        fetch_token(settings(endpoint.url, retry_s=0), waits.append)


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (401, b'{"error":"invalid_client","error_description":"s3cr:t&"}', AuthenticationError, r"HTTP status 401 \(invalid_client\)$"),
        (400, b'{"error":"s3cr:t&"}', AuthenticationError, "HTTP status 400$"),
        (302, b"", AuthenticationError, "HTTP status 302$"),
        (200, b"<html>", ConnectError, "without an access_token"),
        (200, b'{"access_token":7}', ConnectError, "without an access_token"),
        (200, b'{"access_token":"a b"}', ConnectError, "no token that can be used"),
    ],
)  # fmt: skip
def test_refusals(endpoint: TokenEndpoint, status: int, body: bytes, error: type[ClientError], message: str) -> None:
    endpoint.script.append((status, body))
    with pytest.raises(error, match=message) as refusal:
        fetch_token(settings(f"{endpoint.url}?key=s3cr:t&"))
    assert "s3cr" not in str(refusal.value) and "/token" in str(refusal.value) and len(endpoint.asked) == 1


def test_an_endpoint_that_is_away() -> None:
    with TokenEndpoint(lambda: TOKEN).serving() as gone:
        pass
    with pytest.raises(ConnectError, match=r"cannot reach http://127.0.0.1:\d+/token for a token: connection refused"):
        fetch_token(settings(gone.url, retry_s=0))


def test_a_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    server = HttpsServer(tmp_path)
    with server.serving({}), pytest.raises(ConnectError, match="its certificate is not trusted"):
        fetch_token(settings(f"{server.url}/token", retry_s=0))


def test_a_token_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    path.write_text(f"{TOKEN}\n")
    assert file_path(path.as_uri()) == str(path) and file_path("https://host/x") is None
    assert file_token(str(path), {}).text == TOKEN
    for content, message in ((b"", "the token is empty"), (b"\xff", "there is no token")):
        path.write_bytes(content)
        with pytest.raises(ConnectError, match=message):
            file_token(str(path), {})
    with pytest.raises(ConnectError, match="no such file"):
        file_token(str(tmp_path / "away"), {})


def test_an_address_is_shown_without_secrets() -> None:
    assert shown("https://user:secret@host:8443/path?key=secret#x") == "https://host:8443/path"
    assert "s3cr" not in repr(settings("https://host/token"))
