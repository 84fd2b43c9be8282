"""SCRAM users: added, shown and removed; where a password may come from."""

from __future__ import annotations

import io
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.cli.cluster.user import read_password
from ottla.cli.command import UsageError
from ottla.client.blocking import scram_admin
from tests.cli.conftest import Ottla


def test_a_password_is_no_argument(offline: Ottla) -> None:
    """The line says what to do instead, and does not repeat the password."""
    for words in (("--password", "s3cret"), ("--password=s3cret",), ("--password",)):
        result = offline("user", "add", "alice", *words)
        assert (result.code, "--password-stdin" in result.err, "s3cret" in result.err) == (2, True, False), result


def test_a_user_is_added_shown_and_removed(ottla: Ottla, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\nnot this\n")
    name = f"user-{uuid.uuid4().hex[:8]}"
    added = ottla("user", "add", name, "--password-file", str(secret), "--mechanism", "SCRAM-SHA-512", "--iterations", "8192")
    assert added.code == 0 and "s3cret" not in added.out + added.err
    shown = ottla("user", "list", name, "-o", "json").json()
    assert shown == {"users": [{"user": name, "mechanism": "SCRAM-SHA-512", "iterations": 8192}]}
    assert ottla("user", "remove", name, "--yes").code == 0
    for words in (("remove", name, "--yes"), ("list", name)):
        refused = ottla("user", *words)
        assert (refused.code, refused.err.count("\n")) == (1, 1), refused


def test_create_and_delete_are_other_names(ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"user-{uuid.uuid4().hex[:8]}"
    monkeypatch.setattr("sys.stdin", io.StringIO("s3cret\n"))
    assert ottla("user", "create", name, "--password-stdin").code == 0
    (shown,) = ottla("user", "list", name, "-o", "json").json()["users"]
    assert (shown["user"], shown["mechanism"]) == (name, "SCRAM-SHA-256")
    assert ottla("user", "delete", name, "--yes").code == 0
    assert ottla("user", "list", name).code == 1


@pytest.mark.parametrize(
    "words",
    [
        ("add", "a"),
        ("create", "a", "--password-stdin", "--password-file", __file__),
        ("add", "a", "--password", "x"),
        ("add", "a", "--password-file", "/dev/null"),
        ("add", "a", "--password-file", "/nowhere/secret"),
        ("add", "a", "--password-file", __file__, "--iterations", "5"),
        ("add", "a", "--password-file", __file__, "--mechanism", "PLAIN"),
        ("remove", "a"),
    ],
)
def test_wrong_usage(ottla: Ottla, words: tuple[str, ...]) -> None:
    result = ottla("user", *words)
    assert (result.code, result.err.count("\n")) == (2, 1), result


@pytest.mark.parametrize(("typed", "message"), [(["one", "two"], "differ"), (["", ""], "empty"), (["same", "same"], "")])
def test_a_password_is_typed_twice(monkeypatch: pytest.MonkeyPatch, typed: list[str], message: str) -> None:
    left = list(typed)
    monkeypatch.setattr("getpass.getpass", lambda *_: left.pop(0))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: True))
    if not message:
        assert read_password(None, "a") == "same"
        return
    with pytest.raises(UsageError, match=message):
        read_password(None, "a")


def test_what_is_sent_for_a_user(ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    monkeypatch.setattr(scram_admin, "alter_scram", lambda _, name, **what: sent.append((name, what)))
    monkeypatch.setattr(scram_admin, "describe_scram", lambda *_: {"al": [scram_admin.Credential("SCRAM-SHA-512", 8192)]})
    monkeypatch.setattr("sys.stdin", io.StringIO("se cret\nmore\n"))
    assert ottla("user", "add", "al", "--password-file", "-", "--mechanism", "SCRAM-SHA-512", "--iterations", "8192").code == 0
    assert ottla("user", "remove", "al", "--yes").code == 0
    assert sent == [("al", {"passwords": {"SCRAM-SHA-512": ("se cret", 8192)}}), ("al", {"deletions": ["SCRAM-SHA-512"]})]
    assert ottla("user", "list").out == "USER  MECHANISM      ITERATIONS\nal    SCRAM-SHA-512        8192\n"
