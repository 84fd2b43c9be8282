"""Reads the requests and responses that a broker records (frames), for the page of the live wire. It keeps the newest ones, up to a limit
in bytes. Each call of `look` asks a broker for the pairs of request and response since the previous call. The broker records only while a
client asks, so it stops soon after the page is closed (`wire/messages/describe_frames.py`).
"""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

from ottla.analysis.frames import Frame, explain_request, explain_response
from ottla.base.errors import ErrorCode
from ottla.client.blocking.cluster import Cluster
from ottla.client.core.own_apis import describe_frames
from ottla.wire.apis import APIS
from ottla.wire.messages.describe_frames import DescribeFramesResponse, FramePair

KEPT_BYTES_MAX = 4 << 20
"""Bytes of pairs that a console keeps for each identity and broker. 4 MiB: as many as a broker keeps."""
PAIR_BYTES = 1_000
"""Memory of a pair beside its frames."""
LOOK_BYTES_MAX = 1 << 20
"""Bytes of frames in one look."""
LOOKS_MAX = 4
"""Requests for frames in one look. A broker that answers more in a second shows the newest part of them."""


class Seen(NamedTuple):
    """The result of `look`: the pairs in memory, the oldest first, and how many pairs the console has missed since it began."""

    pairs: list[FramePair]
    missed: int


class Wire:
    """See the module. Threads may share it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kept: dict[int, _Kept] = {}
        self._lock = threading.Lock()

    def look(self, broker: int) -> Seen:
        """Reads the new pairs of a broker. Raises `ApiError`: UNSUPPORTED_VERSION for a broker that is not Ottla's, and
        CLUSTER_AUTHORIZATION_FAILED for a user that may not alter the cluster."""
        with self._lock:
            kept = self._kept.setdefault(broker, _Kept())
            for _ in range(LOOKS_MAX):
                answer = describe_frames(self._cluster, broker, after=kept.last, bytes_max=LOOK_BYTES_MAX)
                if answer.newest < kept.last:  # the broker was started again
                    kept = self._kept[broker] = _Kept()
                    continue
                kept.add(answer)
                if kept.last == answer.newest:
                    break
            return Seen(list(kept.pairs), kept.missed)

    def pair(self, broker: int, number: int) -> FramePair | None:
        """Returns a pair that was read before, None if it is not in memory any more."""
        with self._lock:
            kept = self._kept.get(broker)
            return next((pair for pair in kept.pairs if pair.number == number), None) if kept is not None else None


class _Kept:
    def __init__(self) -> None:
        self.pairs: deque[FramePair] = deque()
        self.last = -1
        self.missed = 0
        self._bytes = 0

    def add(self, answer: DescribeFramesResponse) -> None:
        """Adds the pairs of an answer, and drops the oldest ones. An answer without pairs means that the broker has no pair up to the
        number `newest`.
        """
        self.missed += answer.lost
        for pair in answer.pairs:
            # The decoded fields are views of the answer, which would keep the whole answer in memory.
            pair.request, pair.response = (None if part is None else bytes(part) for part in (pair.request, pair.response))
            self.pairs.append(pair)
            self._bytes += _size(pair)
        self.last = answer.pairs[-1].number if answer.pairs else answer.newest
        while self._bytes > KEPT_BYTES_MAX:
            self._bytes -= _size(self.pairs.popleft())


def _size(pair: FramePair) -> int:
    return PAIR_BYTES + len(pair.request or b"") + len(pair.response or b"")


def explained_response(pair: FramePair) -> Frame | None:
    """Returns the answer field by field, None if it was not recorded or its API is unknown."""
    if pair.response is None or pair.api_key not in APIS:
        return None
    return explain_response(pair.response, pair.api_key, pair.api_version)


def explained_request(pair: FramePair) -> Frame | None:
    """Returns the request field by field, None if it was not recorded."""
    return None if pair.request is None else explain_request(pair.request)


def errors_of(pair: FramePair) -> list[str]:
    """Returns the names of the errors in the recorded part of an answer, each once."""
    response = explained_response(pair)
    found = [span.value for span in response.spans if span.name == "error_code" and span.value] if response is not None else []
    return [_name(code) for code in dict.fromkeys(found)]


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
