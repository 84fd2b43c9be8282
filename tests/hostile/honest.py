"""An honest client that runs during an attack: it sends small requests one after the other, and measures the time of each answer."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from ottla.wire.messages import api_versions, create_topics, fetch, metadata, offset_commit, produce
from ottla.wire.records import Record, encode_batch
from tests.clients.broker_process import eventually
from tests.clients.wire_client import WireClient, error_codes

ANSWER_SECONDS_MAX = 120
PAUSE_SECONDS = 0.002
TOPIC = GROUP = "honest"


class Honest:
    """A client in its own thread. An answer with an error or a closed connection ends it (`failure`)."""

    def __init__(self, port: int) -> None:
        self._client = WireClient(port, timeout=ANSWER_SECONDS_MAX, client_id="honest")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="honest-client")
        self._offset = 0
        self.waits_ms: list[float] = []
        self.failure: Exception | None = None
        topic = create_topics.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        self._client.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        for step in (self._write, self._commit):
            eventually(lambda step=step: not any(error_codes(step())))

    def start(self) -> Honest:
        self._thread.start()
        return self

    def wait_for_answers(self, count: int) -> None:
        """Waits until the client has got this number of further answers, or has failed (`Target.end` reports that)."""
        wanted, deadline = len(self.waits_ms) + count, time.monotonic() + ANSWER_SECONDS_MAX
        while len(self.waits_ms) < wanted and self.failure is None:
            assert time.monotonic() < deadline, "the honest client was not served"
            time.sleep(PAUSE_SECONDS)

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._client.socket.close()

    def _run(self) -> None:
        try:
            for step in self._steps():
                if self._stop.is_set():
                    return
                began = time.perf_counter()
                answer = step()
                self.waits_ms.append((time.perf_counter() - began) * 1000)
                assert not any(error_codes(answer)), answer
                time.sleep(PAUSE_SECONDS)
        except Exception as error:  # the test checks it
            self.failure = error

    def _steps(self) -> Iterator[Callable[[], Any]]:
        return itertools.cycle((self._ask_what_is_served, self._write, self._read, self._commit, self._ask_for_metadata))

    def _ask_what_is_served(self) -> Any:
        return self._client.ask(api_versions.ApiVersionsRequest(client_software_name="honest", client_software_version="1"), 3)

    def _write(self) -> Any:
        records = encode_batch([Record(0, int(time.time() * 1000), b"key", b"value", ())])
        data = produce.PartitionProduceData(index=0, records=memoryview(records))
        topic = produce.TopicProduceData(name=TOPIC, partition_data=[data])
        answer = self._client.ask(produce.ProduceRequest(acks=-1, timeout_ms=120_000, topic_data=[topic]), 9)
        self._offset = answer.responses[0].partition_responses[0].base_offset
        return answer

    def _read(self) -> Any:
        partition = fetch.FetchPartition(partition=0, fetch_offset=self._offset, partition_max_bytes=1 << 20)
        topics = [fetch.FetchTopic(topic=TOPIC, partitions=[partition])]
        answer = self._client.ask(fetch.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, topics=topics), 12)
        assert answer.responses[0].partitions[0].records, "the record that was written is not there"
        return answer

    def _commit(self) -> Any:
        partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=self._offset, committed_metadata="")
        topic = offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
        return self._client.ask(offset_commit.OffsetCommitRequest(group_id=GROUP, topics=[topic]), 8)

    def _ask_for_metadata(self) -> Any:
        return self._client.ask(metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=TOPIC)]), 12)
