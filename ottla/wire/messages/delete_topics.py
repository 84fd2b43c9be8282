"""DeleteTopics: delete topics by name, or from version 6 on by id."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, i16, i32, string, uuid


class DeleteTopicState(Struct):
    name: str | None = string(since=6, nullable=True, default=None)
    topic_id: Uuid = uuid(since=6)


class DeleteTopicsRequest(Request):
    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array(string, until=5, ignorable=True)
    timeout_ms: int = i32()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable_since=6)
    topic_id: Uuid = uuid(since=6, ignorable=True)
    error_code: int = i16()
    error_message: str | None = string(since=5, nullable=True, default=None, ignorable=True)


class DeleteTopicsResponse(Response):
    throttle_time_ms: int = i32(ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
