"""SCRAM users: refused in one line by our broker, which stores none; the requests to a broker that does."""

from __future__ import annotations

import io
import json

import pytest

from ottla.client.blocking import scram_admin
from tests.cli.conftest import Ottla


def test_our_broker_has_no_users(ottla: Ottla) -> None:
    assert json.loads(ottla("user", "list", "-o", "json").out) == {"users": []}
    for words in (("create", "a", "--password", "x"), ("delete", "a", "--yes"), ("list", "a")):
        refused = ottla("user", *words)
        assert (refused.code, refused.err.count("\n")) == (1, 1), refused


@pytest.mark.parametrize(
    "words",
    [
        ("create", "a"),
        ("create", "a", "--password", "x", "--password-stdin"),
        ("create", "a", "--password", ""),
        ("create", "a", "--password", "x", "--iterations", "5"),
        ("create", "a", "--password", "x", "--mechanism", "PLAIN"),
        ("delete", "a"),
    ],
)
def test_wrong_usage(ottla: Ottla, words: tuple[str, ...]) -> None:
    result = ottla("user", *words)
    assert (result.code, result.err.count("\n")) == (2, 1)


def test_what_is_sent_for_a_user(ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    monkeypatch.setattr(scram_admin, "alter_scram", lambda _, name, **what: sent.append((name, what)))
    monkeypatch.setattr(scram_admin, "describe_scram", lambda *_: {"al": [scram_admin.Credential("SCRAM-SHA-512", 8192)]})
    monkeypatch.setattr("sys.stdin", io.StringIO("se cret\nmore\n"))
    assert ottla("user", "create", "al", "--password-stdin", "--mechanism", "SCRAM-SHA-512", "--iterations", "8192").code == 0
    assert ottla("user", "delete", "al", "--yes").code == 0
    assert sent == [("al", {"passwords": {"SCRAM-SHA-512": ("se cret", 8192)}}), ("al", {"deletions": ["SCRAM-SHA-512"]})]
    assert ottla("user", "list").out == "USER  MECHANISM      ITERATIONS\nal    SCRAM-SHA-512        8192\n"
