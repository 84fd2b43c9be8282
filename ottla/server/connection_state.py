"""The states of a client connection (`connection.py`), and the moves between them.

A connection reads and executes requests in READING only. BLOCKED, THROTTLED and FULL stop it for a time: new bytes stay in the socket, and
answers are still sent. If several reasons hold at once, the state is the first of BLOCKED, THROTTLED and FULL; when that reason ends, the
next one becomes the state. Exception: when the scheduler resumes a connection whose peer has to take answers first, the state is FULL. In
FINISHING and CLOSED no further request is executed. `docs/reference/states.md` is made from this table.
"""

from __future__ import annotations

from enum import Enum


class ConnectionState(Enum):
    """The states; the value completes the sentence "a connection in it ..."."""

    READING = "reads and executes requests"
    BLOCKED = "waits until its request has been executed, or until the scheduler resumes the connection"
    THROTTLED = "waits for the throttle time of a quota that its client has exceeded"
    FULL = "waits until answers are given or taken: too many requests are in flight, or too many bytes are unsent"
    FINISHING = "executes no further request, and answers those in flight"
    CLOSED = "is closed"


READING = ConnectionState.READING
BLOCKED = ConnectionState.BLOCKED
THROTTLED = ConnectionState.THROTTLED
FULL = ConnectionState.FULL
FINISHING = ConnectionState.FINISHING
CLOSED = ConnectionState.CLOSED

ALLOWED: dict[ConnectionState, frozenset[ConnectionState]] = {
    READING: frozenset((BLOCKED, THROTTLED, FULL, FINISHING, CLOSED)),
    BLOCKED: frozenset((READING, THROTTLED, FULL, FINISHING, CLOSED)),
    THROTTLED: frozenset((READING, BLOCKED, FULL, FINISHING, CLOSED)),
    FULL: frozenset((READING, THROTTLED, FINISHING, CLOSED)),
    FINISHING: frozenset((CLOSED,)),
    CLOSED: frozenset(),
}
ENDING = frozenset((FINISHING, CLOSED))
