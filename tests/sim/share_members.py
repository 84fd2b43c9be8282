"""Members of a share group: each reads one partition, acknowledges at random, is sometimes slow, skips records, and dies. If an answer is
missing or has an error, the member regards its session as ended and opens another one. Its acquired records become available when their
locks expire.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.base.types import TopicPartition
from ottla.handlers.share_groups import share_acknowledge, share_fetch
from ottla.sharing.acknowledgement import ACCEPT, REJECT, RELEASE, RENEW
from ottla.sharing.sessions import FINAL_EPOCH, INITIAL_EPOCH
from ottla.wire.messages import share_acknowledge as acknowledging
from ottla.wire.messages import share_fetch as fetching
from tests.sim.network import Call
from tests.sim.process import Steps
from tests.sim.share_broker import SHARED, TOPIC_ID
from tests.sim.share_history import LOCK_MS

if TYPE_CHECKING:
    from tests.sim.share_world import ShareWorld

GROUP = "g"
Words = list[tuple[int, int, list[int]]]
"""First offset, last offset, acknowledge types."""


class Member:
    places: Sequence[TopicPartition] = SHARED

    def __init__(self, world: ShareWorld, name: str, partition: int) -> None:
        self.world = world
        self.chance = world.chance
        self.name = name
        self.partition = partition
        self.epoch = INITIAL_EPOCH

    def run(self) -> Steps:
        while not self.world.is_closing:
            self.epoch = INITIAL_EPOCH
            words: Words = []
            is_well = True
            while is_well and not self.world.is_closing:
                yield from self._begin_round()
                answer = yield self._fetch(words)
                words = []
                is_well = answer is not None and not answer.error_code
                if not is_well:
                    break
                answered = answer.responses[0].partitions[0] if answer.responses else None
                if answered is not None and answered.acquired_records:
                    yield from self._think()
                    words = self._words([(a.first_offset, a.last_offset) for a in answered.acquired_records])
                    is_well = yield from self._acknowledge(words)
                    words = words if is_well is None else []
                    is_well = is_well is not False
                else:
                    is_well = answered is None or not answered.error_code
                yield self.chance.randint(0, 30)
            yield self.chance.randint(1, 60)

    def _begin_round(self) -> Steps:
        """Called before each fetch."""
        yield from ()

    @property
    def topic_id(self) -> bytes:
        return TOPIC_ID

    def leave(self) -> Call:
        """Ends the session; the member's records become available again."""
        self.epoch = FINAL_EPOCH
        return self._call(share_acknowledge, acknowledging, acknowledging.ShareAcknowledgeRequest, [], {})

    # Steps

    def _think(self) -> Steps:
        """Pauses, usually for less than the lock timeout."""
        if self.world.is_ending:
            yield self.chance.randint(0, 10)
        else:
            yield self.chance.choice([0, 5, 20, 100, 2 * LOCK_MS])

    def _words(self, held: list[tuple[int, int]]) -> Words:
        words: Words = []
        for first, last in held:
            if self.world.is_ending:
                words.append((first, last, [ACCEPT]))
                continue
            if self.chance.random() < 0.1:
                continue  # never acknowledges it
            if self.chance.random() < 0.5:
                words.append((first, last, [self._kind()]))
            else:
                words.append((first, last, [self._kind() for _ in range(first, last + 1)]))
        return words

    def _kind(self) -> int:
        return self.chance.choices([ACCEPT, RELEASE, REJECT, RENEW], [10, 4, 1, 1])[0]

    def _acknowledge(self, words: Words) -> Steps:
        """Acknowledges records. Returns None if the next fetch will contain the acknowledgements, else whether the session is still open.
        """
        is_renewing = any(RENEW in types for _, _, types in words)
        if not words or (not is_renewing and self.chance.random() < 0.5):
            return None
        body = {"is_renew_ack": is_renewing}
        answer = yield self._call(share_acknowledge, acknowledging, acknowledging.ShareAcknowledgeRequest, words, body)
        return answer is not None and not answer.error_code

    def _fetch(self, words: Words) -> Call:
        wanted = {
            "max_wait_ms": self.chance.choice([0, 50, 150]),
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": self.chance.choice([1, 3, 10]),
            "batch_size": self.chance.choice([1, 5, 10]),
            "share_acquire_mode": self.chance.choice([0, 1]),
        }
        return self._call(share_fetch, fetching, fetching.ShareFetchRequest, words, wanted)

    def _call(self, handler: Any, messages: Any, request_type: Any, words: Words, options: dict[str, Any]) -> Call:
        epoch, partition, name = self.epoch, self.partition, self.name
        batches = [messages.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=types) for a, b, types in words]
        if handler is share_fetch:
            asked = fetching.FetchPartition(partition_index=partition, acknowledgement_batches=batches)
            topics: Any = [fetching.FetchTopic(topic_id=self.topic_id, partitions=[asked])] if words or epoch == INITIAL_EPOCH else []
        else:
            stated = acknowledging.AcknowledgePartition(partition_index=partition, acknowledgement_batches=batches)
            topics = [acknowledging.AcknowledgeTopic(topic_id=self.topic_id, partitions=[stated])] if words else []
        if epoch != FINAL_EPOCH:
            self.epoch = epoch + 1

        def body() -> Any:
            return request_type(group_id=GROUP, member_id=name, share_session_epoch=epoch, topics=topics, **options)

        return Call(handler, 2, body, self.places[partition])
