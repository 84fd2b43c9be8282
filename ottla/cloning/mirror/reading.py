"""Reads the source in a separate thread, so that the next records arrive while the target appends the last ones. The reader has a position
for each partition, which advances with each answer. `seek` sets a position; answers to earlier requests are then dropped, so the answers
that `next` returns have no gaps between them. An answer also has the errors of partitions that could not be read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from queue import Empty, Full, Queue
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.core.fetch_once import Failures, fetch_once
from ottla.client.core.fetching import MAX_WAIT_MS, Fetched, FetchLimits, read_headers
from ottla.client.core.operations import isolation_level
from ottla.client.errors import ClientError

FETCH_BYTES = 4 << 20
"""Bytes that one Fetch asks each broker for, from one partition or several. Answers of 16 MiB cost a quarter more CPU time, because the
system makes new pages for them; answers of 1 MiB cost more for the requests."""
ANSWERS_MAX = 2
"""Limit of memory: up to 4 answers of 4 MiB (and one batch more) from each broker are read, waiting or being appended."""
RETRY_SECONDS = 0.5
WAIT_SECONDS = 0.2
STOP_SECONDS = 2.0
"""A Fetch waits for half a second at most. The process ends without the thread if the source does not answer."""

LIMITS = FetchLimits(MAX_WAIT_MS, 1, FETCH_BYTES, FETCH_BYTES)


class Answer(NamedTuple):
    """The partitions with new batches, and the failures of other partitions."""

    fetched: list[Fetched]
    failures: Failures


class Place(NamedTuple):
    """The next offset to read. `number` counts the calls of `seek`."""

    offset: int
    number: int


class Reader:
    """See the module. `client` is for this thread alone. With `is_raw` checksums are left to the target, and `Fetched.batches` has all
    batches."""

    def __init__(self, client: Client, isolation: str, *, is_raw: bool) -> None:
        self._client = client
        self._level = isolation_level(isolation)
        self._read = read_headers if is_raw else None
        self._lock = threading.Lock()
        self._places: dict[TopicPartition, Place] = {}
        self._seeks = 0
        self._answers: Queue[tuple[Mapping[TopicPartition, Place], Answer]] = Queue(ANSWERS_MAX)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mirror-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, and waits for it unless the source is silent."""
        self._is_over.set()
        self._thread.join(STOP_SECONDS)

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Reads these partitions from these offsets on."""
        with self._lock:
            self._seeks += 1
            self._places.update({partition: Place(offset, self._seeks) for partition, offset in positions.items()})

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops reading these partitions."""
        with self._lock:
            for partition in partitions:
                self._places.pop(partition, None)

    def next(self, timeout_s: float) -> Answer:
        """Returns the next answer, an empty one after `timeout_s`."""
        try:
            asked, answer = self._answers.get(timeout=timeout_s)
        except Empty:
            return Answer([], {})
        with self._lock:
            return Answer(
                [one for one in answer.fetched if self._is_current(one.partition, asked)],
                {one: failure for one, failure in answer.failures.items() if self._is_current(one, asked)},
            )

    def _is_current(self, partition: TopicPartition, asked: Mapping[TopicPartition, Place]) -> bool:
        place = self._places.get(partition)
        return place is not None and place.number == asked[partition].number

    def _run(self) -> None:
        while not self._is_over.is_set():
            with self._lock:
                asked = dict(self._places)
            if not asked:
                time.sleep(WAIT_SECONDS)
                continue
            answer = self._fetch({partition: place.offset for partition, place in asked.items()})
            if answer.fetched:
                self._advance(asked, answer.fetched)
            elif answer.failures:
                time.sleep(RETRY_SECONDS)
            if answer.fetched or answer.failures:
                self._put(asked, answer)

    def _fetch(self, positions: Mapping[TopicPartition, int]) -> Answer:
        try:
            return Answer(*fetch_once(self._client.cluster, positions, self._level, LIMITS, read=self._read))
        except ClientError as error:
            return Answer([], dict.fromkeys(positions, error))

    def _advance(self, asked: Mapping[TopicPartition, Place], found: Iterable[Fetched]) -> None:
        with self._lock:
            for one in found:
                if self._is_current(one.partition, asked):
                    # The partition is moved to the end of the next request, so that a busy partition does not fill all answers.
                    place = self._places.pop(one.partition)
                    self._places[one.partition] = place._replace(offset=one.next_offset)

    def _put(self, asked: Mapping[TopicPartition, Place], answer: Answer) -> None:
        while not self._is_over.is_set():
            try:
                self._answers.put((asked, answer), timeout=WAIT_SECONDS)
                return
            except Full:
                continue
