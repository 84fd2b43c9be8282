"""The request line of a connection (`request_line.py`): requests near the end of a SASL session wait for the next login, and the end of the
connection returns all requests."""

from __future__ import annotations

from ottla.base.errors import OttlaError
from ottla.client.core.connection import ConnectionProtocol
from ottla.client.core.request_line import RequestLine
from ottla.wire.messages.heartbeat import HeartbeatRequest
from tests.client.core.talk import ScriptedPeer, open_protocol


def line_with_session(*, may_login_again: bool = True) -> tuple[RequestLine[str], ConnectionProtocol]:
    """Returns a request line whose SASL session of one second began at 0 s."""
    protocol = ConnectionProtocol("b:9092")
    open_protocol(protocol, ScriptedPeer({12: lambda _body, _version: None}))
    line: RequestLine[str] = RequestLine(protocol, 0.5, may_login_again=may_login_again)
    protocol.session_lifetime_ms = 1000
    assert line.logged_in(0.0) == []
    return line, protocol


def test_a_request_is_held_when_the_session_is_about_to_end_and_sent_after_the_login() -> None:
    line, protocol = line_with_session()
    assert line.ask(HeartbeatRequest(), None, "early", 0.1) and not line.begins_login()
    assert line.ask(HeartbeatRequest(), None, "late", 0.96) is None and not line.begins_login(), "a request is in flight"
    assert len(line) == 2 and line.first == "early"
    assert line.in_flight.popleft() == "early" and line.begins_login() and not line.begins_login()
    assert line.ask(HeartbeatRequest(), None, "during", 0.97) is None and line.is_open
    sent = line.logged_in(1.0)
    assert [waiter for waiter, _ in sent] == ["late", "during"] == list(line.in_flight)
    assert all(isinstance(frame, bytes) for _, frame in sent) and len(protocol.pending) == 3


def test_a_line_that_may_not_log_in_again_holds_nothing() -> None:
    line, _ = line_with_session(may_login_again=False)
    assert line.ask(HeartbeatRequest(), None, "late", 5.0) and not line.begins_login()


def test_closing_returns_all_requests_in_order() -> None:
    line, _ = line_with_session()
    for waiter, now_s in (("a", 0.1), ("b", 0.96), ("c", 0.97)):
        line.ask(HeartbeatRequest(), None, waiter, now_s)
    assert line.close() == ["a", "b", "c"] and len(line) == 0 and line.first is None and not line.is_open


def test_a_held_request_that_cannot_be_sent_has_an_error_and_the_others_are_sent() -> None:
    line, _ = line_with_session()
    line.ask(HeartbeatRequest(), 99, "wrong", 0.96)
    line.ask(HeartbeatRequest(), None, "right", 0.96)
    assert line.begins_login()
    (wrong, error), (right, frame) = line.logged_in(1.0)
    assert (wrong, right) == ("wrong", "right") and isinstance(frame, bytes) and list(line.in_flight) == ["right"]
    assert isinstance(error, OttlaError)
