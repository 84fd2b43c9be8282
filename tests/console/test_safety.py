"""What the console refuses before it asks a cluster: unsafe addresses, forms that are old or forged, and more sessions than it keeps."""

from __future__ import annotations

import time

import pytest

from ottla.cli.main import main
from ottla.console.model import Done, PageError
from ottla.console.safety import RESULTS_MAX, SESSIONS_MAX, TOKEN_AGE_MAX_S, Session, Sessions


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--host", "0.0.0.0"], "0.0.0.0 can be reached from other machines, so users have to log in"),
        (["--host", "::"], ":: can be reached from other machines"),
        (["--host", "127.0.0.1.example"], "can be reached from other machines"),
        (["--login"], "--login needs a cluster with SASL"),
        (["--host", "0.0.0.0", "--login", "-X", "security.protocol=SSL"], "--login needs a cluster with SASL"),
        (["--port", "65536"], "--port is a number from 0 to 65535"),
    ],
)
def test_unsafe_options_are_refused(options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "--port", "0", *options]) == 2
    assert sentence in capsys.readouterr().err


def test_a_form_is_accepted_once_from_its_own_session_within_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    session, now = Session(), time.time()
    token, old = session.new_token(), session.new_token()
    assert session.take(token) and not session.take(token)
    for forged in ("", "x", token.rpartition(".")[0], f"{int(now):x}-{token.partition('-')[2]}x", Session().new_token()):
        with pytest.raises(PageError, match="was not made by this console"):
            session.take(forged)
    monkeypatch.setattr(time, "time", lambda: now + TOKEN_AGE_MAX_S + 2)
    with pytest.raises(PageError, match="older than an hour"):
        session.take(old)


def test_a_form_whose_result_was_dropped_does_not_act_again(monkeypatch: pytest.MonkeyPatch) -> None:
    session, now = Session(), time.time()
    first, unsent = session.new_token(), session.new_token()
    assert session.take(first)
    monkeypatch.setattr(time, "time", lambda: now + 10)
    for _ in range(RESULTS_MAX):
        token = session.new_token()
        assert session.take(token) and not session.take(token)
        session.results[token] = Done("done", "/")
    assert len(session.results) == RESULTS_MAX and first not in session.results
    for old in (first, unsent):
        with pytest.raises(PageError, match="Open the page again"):
            session.take(old)


def test_the_number_of_sessions_is_bounded() -> None:
    sessions = Sessions()
    kept = [Session() for _ in range(SESSIONS_MAX + 1)]
    for one in kept[:-1]:
        sessions.add(one)
    assert sessions.find(kept[0].id) is kept[0], "it is used"
    sessions.add(kept[-1])
    assert sessions.find(kept[1].id) is None and sessions.find(kept[0].id) is kept[0], "the one that was idle for longest is dropped"
