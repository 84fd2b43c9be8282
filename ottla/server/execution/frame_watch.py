"""Records the requests of all connections and their answers while a client asks for them (`handlers/cluster/describe_frames.py`).

A DescribeFrames request begins the recording. Before it nothing is recorded, and requests are executed without an additional call. From
then on each request passes through `_execute`, and the answers of each write to a socket are passed to `_note_answers`. The recording ends,
and its memory is freed, `LOOKS_END_MS` after the last DescribeFrames request.

Bounds: `KEPT_BYTES_MAX` for all pairs of request and answer together, `FRAME_BYTES_MAX` for one frame. The oldest pairs are dropped first.
Frames of APIs with secrets are never kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ottla.base.ports import Clock, Part, Slice, TimerHandle, Timers
from ottla.wire.apis import KEYS
from ottla.wire.framing import FRAME_SIZE_BYTES
from ottla.wire.messages.describe_frames import NO_ANSWER_US, FramePair

if TYPE_CHECKING:
    from ottla.server.answer_queue import AnswerQueue
    from ottla.server.connection import Connection
    from ottla.server.execution.dispatch import Dispatcher
    from ottla.server.listener import Listeners

KEPT_BYTES_MAX = 4 << 20
"""Memory of all recorded pairs, in bytes. 4 MiB hold some thousand small pairs, and are little beside a broker's 60 MiB."""
FRAME_BYTES_MAX = 16 << 10
"""Number of bytes at the start of a frame that are recorded."""
PAIR_BYTES = 600
"""Memory of a pair beside its frames."""
WAITING_MAX = 256
"""Requests of one connection whose answers are awaited. If more are in flight, the oldest is shown without its answer."""
LOOKS_END_MS = 10_000
"""The recording ends this long after the last DescribeFrames request, in milliseconds. A console sends one every second."""
SECRET_APIS = frozenset(
    KEYS[name]
    for name in (
        "SaslAuthenticate", "AlterUserScramCredentials", "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken",
        "DescribeDelegationToken", "AlterConfigs", "IncrementalAlterConfigs", "Envelope",
    )
)  # fmt: skip
"""APIs whose requests or answers can have secrets: SASL tokens, salted passwords, the HMACs of delegation tokens, passwords in settings. An
Envelope has a whole request of a client."""
OWN_KEY = KEYS["DescribeFrames"]


class FrameWatch:
    """See the module."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._dispatcher: Dispatcher
        self._listeners: Listeners
        self._execute_plainly: Callable[[Connection, memoryview], bool]
        """The dispatcher's own function."""
        self._complete: deque[_Recorded] = deque()
        """The pairs in the order of their answers."""
        self._waiting: dict[AnswerQueue, deque[_Recorded]] = {}
        """The requests of each connection that are not answered yet."""
        self._kept_bytes = 0
        self._next_number = 0
        self._end: TimerHandle | None = None
        """Ends the recording. None while nothing is recorded."""

    def attach(self, dispatcher: Dispatcher, listeners: Listeners) -> None:
        self._dispatcher, self._listeners, self._execute_plainly = dispatcher, listeners, dispatcher.execute

    @property
    def is_recording(self) -> bool:
        return self._end is not None

    @property
    def newest(self) -> int:
        return self._next_number - 1

    @property
    def kept_bytes(self) -> int:
        return self._kept_bytes

    def since(self, after: int, bytes_max: int) -> tuple[int, list[FramePair]]:
        """Returns the pairs with numbers above `after`: at most `bytes_max` bytes, but at least one pair. Also returns how many of these
        pairs are no longer in memory. Begins the recording, or prolongs it."""
        self._begin()
        first = self._complete[0].pair.number if self._complete else self._next_number
        found: list[FramePair] = []
        for recorded in islice(self._complete, max(0, after + 1 - first), None):
            bytes_max -= recorded.size_bytes
            if bytes_max < 0 and found:
                break
            found.append(recorded.pair)
        return 0 if after < 0 else max(0, first - after - 1), found

    def _begin(self) -> None:
        if self._end is not None:
            self._end.cancel()
        else:
            self._dispatcher.execute = self._execute
            self._listeners.watch_answers(self._note_answers)
        self._end = self._timers.call_later(LOOKS_END_MS, self._stop)

    def _stop(self) -> None:
        """Ends the recording and frees its memory. The next recording continues the numbers of the pairs."""
        self._end = None
        self._dispatcher.execute = self._execute_plainly
        self._listeners.watch_answers(None)
        self._complete.clear()
        self._waiting.clear()
        self._kept_bytes = 0

    # Requests

    def _execute(self, connection: Connection, frame: memoryview) -> bool:
        """Records and executes a request. If neither an answer nor a slot for one was added, the request gets no answer."""
        execute, answers = self._execute_plainly, connection.answers
        key = int.from_bytes(frame[:2], "big", signed=True)
        if key == OWN_KEY:
            return execute(connection, frame)
        recorded = self._record(connection, key, frame)
        before = len(answers.slots), answers.out_bytes
        try:
            return execute(connection, frame)
        finally:
            if recorded is not None:
                recorded.pair.client_id = connection.client_id
                recorded.pair.principal = connection.info.principal
                if (len(answers.slots), answers.out_bytes) == before and recorded in self._waiting.get(answers, ()):
                    self._waiting[answers].remove(recorded)
                    self._finish(recorded)

    def _record(self, connection: Connection, key: int, frame: memoryview) -> _Recorded | None:
        """Records a request before it is executed, because its buffer is used again afterwards. Returns None if requests that are not
        answered yet take all the memory."""
        is_secret = key in SECRET_APIS
        kept = None if is_secret else bytes(frame[:FRAME_BYTES_MAX])
        if not self._make_room(PAIR_BYTES + len(kept or b"")):
            return None
        info = connection.info
        pair = FramePair(
            at_ms=self._clock.wall_ms(), duration_us=NO_ANSWER_US, client=info.identity, listener=info.listener, principal=info.principal,
            api_key=key, api_version=int.from_bytes(frame[2:4], "big", signed=True),
            correlation_id=int.from_bytes(frame[4:8], "big", signed=True), request_bytes=len(frame), is_secret=is_secret, request=kept,
        )  # fmt: skip
        recorded = _Recorded(pair, self._clock.nanoseconds(), PAIR_BYTES + len(kept or b""))
        waiting = self._waiting.get(connection.answers)
        if waiting is None:
            waiting = self._waiting[connection.answers] = deque()
            info.call_when_closed(self, lambda _watch: self._forget(connection.answers))
        waiting.append(recorded)
        if len(waiting) > WAITING_MAX:
            self._finish(waiting.popleft())
        self._kept_bytes += recorded.size_bytes
        return recorded

    def _make_room(self, size: int) -> bool:
        """Drops the oldest complete pairs until there is memory for `size` more bytes. Returns False if dropping all is not enough."""
        while self._kept_bytes + size > KEPT_BYTES_MAX and self._complete:
            self._kept_bytes -= self._complete.popleft().size_bytes
        return self._kept_bytes + size <= KEPT_BYTES_MAX

    def _finish(self, recorded: _Recorded) -> None:
        recorded.pair.number = self._next_number
        self._next_number += 1
        self._complete.append(recorded)

    def _forget(self, answers: AnswerQueue) -> None:
        """Finishes the requests of a closed connection. They get no answer."""
        for recorded in self._waiting.pop(answers, ()):
            self._finish(recorded)

    # Answers

    def _note_answers(self, answers: AnswerQueue, parts: Sequence[Part]) -> None:
        """Notes the answers of one write to a connection. Answers have the order of the requests, so earlier requests get none."""
        waiting = self._waiting.get(answers)
        if not waiting:
            return
        now_ns = self._clock.nanoseconds()
        for size, start in frames_of(parts):
            correlation_id = int.from_bytes(start[:4], "big", signed=True)
            if not any(recorded.pair.correlation_id == correlation_id for recorded in waiting):
                continue  # its request was executed before the recording began
            while (recorded := waiting.popleft()).pair.correlation_id != correlation_id:
                self._finish(recorded)
            pair = recorded.pair
            pair.response_bytes = size
            pair.duration_us = max(0, (now_ns - recorded.started_ns) // 1000)
            if not pair.is_secret and self._make_room(len(start)):
                pair.response = start
                recorded.size_bytes += len(start)
                self._kept_bytes += len(start)
            self._finish(recorded)


class _Recorded:
    """A pair in memory, where it takes `size_bytes`."""

    __slots__ = ("pair", "size_bytes", "started_ns")

    def __init__(self, pair: FramePair, started_ns: int, size_bytes: int) -> None:
        self.pair = pair
        self.started_ns = started_ns
        self.size_bytes = size_bytes


def frames_of(parts: Sequence[Part]) -> Iterator[tuple[int, bytes]]:
    """Yields the size of each answer without its size field, and its first bytes, at most `FRAME_BYTES_MAX`. An answer begins at the start
    of a part or behind another answer in the same part. Bytes behind a file that cannot be read are not returned."""
    left, size, start, is_readable = 0, 0, bytearray(), True
    for part in parts:
        at, end = 0, len(part)
        while at < end:
            if not left:
                assert not isinstance(part, Slice), "an answer begins with its size"
                left = size = int.from_bytes(part[at : at + FRAME_SIZE_BYTES], "big", signed=True)
                at += FRAME_SIZE_BYTES
                start, is_readable = bytearray(), True
            step = min(left, end - at)
            if wanted := min(step, FRAME_BYTES_MAX - len(start)) if is_readable else 0:
                found = _read(part, at, wanted)
                start += found
                is_readable = len(found) == wanted
            at += step
            left -= step
            if not left:
                yield size, bytes(start)


def _read(part: Part, start: int, length: int) -> bytes | bytearray | memoryview:
    """Returns bytes of a part. A slice of a file is read, as the channel does with small slices; fewer bytes if that fails, which the
    channel then reports."""
    if not isinstance(part, Slice):
        return part[start : start + length]
    try:
        return part.read_piece(start, length)
    except OSError:
        return b""
