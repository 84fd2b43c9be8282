"""Brokers that break one promise each: a correct broker behind a proxy with a rule."""

from __future__ import annotations

import struct
from typing import Any

from ottla.cli.check.eos.proxy import Rule
from ottla.wire.batch_header import stamp_crc
from ottla.wire.codec import decoder, encoder
from ottla.wire.framing import load, read_request_header, read_response_header

PRODUCE, FETCH, OFFSET_FETCH, API_VERSIONS, INIT_PRODUCER_ID, END_TXN = 0, 1, 9, 18, 22, 26
PRODUCER_FIELDS = struct.Struct(">qhi")  # id, epoch and first sequence
PRODUCER_FIELDS_AT = 43


class Lie(Rule):
    """Changes messages of some keys; subclasses define how."""

    keys: tuple[int, ...] = ()

    def change_request(self, request: Any) -> None:
        """In place."""

    def change_response(self, response: Any) -> None:
        """In place."""

    def request(self, key: int, version: int, frame: bytes) -> bytes:
        if key not in self.keys:
            return frame
        *_, start = read_request_header(frame)
        request, _ = decoder(load(key)[0], version)(frame, start)
        self.change_request(request)
        return frame[:start] + encoder(type(request), version)(request)

    def response(self, key: int, version: int, frame: bytes) -> bytes | None:
        if key not in self.keys:
            return frame
        _, start = read_response_header(key, version, frame)
        response, _ = decoder(load(key)[1], version)(frame, start)
        self.change_response(response)
        return frame[:start] + encoder(type(response), version)(response)


class ReadsUncommitted(Lie):
    """Treats every reader as read_uncommitted."""

    keys = (FETCH,)

    def change_request(self, request: Any) -> None:
        request.isolation_level = 0


class CommitsAborts(Lie):
    """Commits transactions that should be aborted."""

    keys = (END_TXN,)

    def change_request(self, request: Any) -> None:
        request.committed = True


class AnswersFencedWithSuccess(Lie):
    """Answers every Produce and EndTxn with success."""

    keys = (PRODUCE, END_TXN)

    def change_response(self, response: Any) -> None:
        is_end = hasattr(response, "error_code")
        for found in [response] if is_end else [partition for topic in response.responses for partition in topic.partition_responses]:
            found.error_code = 0


class CallsAllOffsetsStable(Lie):
    """Returns offsets that an open transaction may still change."""

    keys = (OFFSET_FETCH,)

    def change_request(self, request: Any) -> None:
        request.require_stable = False


class IgnoresTimeout(Lie):
    """Ignores the producer's transaction time-out."""

    keys = (INIT_PRODUCER_ID,)

    def change_request(self, request: Any) -> None:
        request.transaction_timeout_ms = 60_000


class IgnoresEpochOfEnd(Lie):
    """Ignores the epoch of an EndTxn: each one ends the current transaction."""

    keys = (END_TXN,)

    def __init__(self) -> None:
        self.epoch = -1

    def change_request(self, request: Any) -> None:
        request.producer_epoch = max(request.producer_epoch, self.epoch)

    def change_response(self, response: Any) -> None:
        self.epoch = max(self.epoch, response.producer_epoch)


class AcceptsDuplicates(Lie):
    """Treats every batch as new."""

    keys = (PRODUCE,)

    def change_request(self, request: Any) -> None:
        for topic in request.topic_data:
            for partition in topic.partition_data:
                batch = bytearray(partition.records)
                PRODUCER_FIELDS.pack_into(batch, PRODUCER_FIELDS_AT, -1, -1, -1)
                stamp_crc(batch, 0, len(batch))
                partition.records = bytes(batch)


class HasNoFeatures(Lie):
    """A broker without features, which breaks no promise."""

    keys = (API_VERSIONS,)

    def change_response(self, response: Any) -> None:
        response.finalized_features = []
