"""Answers that are joined from the answers of pieces. Answers of whole requests are compared in `tests/server/test_long_requests.py`."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from ottla.server.execution.splitting import PARTS_AT_ONCE, JoinedAnswer, join_rest
from ottla.wire.messages.describe_cluster import DescribeClusterResponse


def test_the_parts_of_a_large_element_are_joined_some_at_a_time() -> None:
    lengths: list[int] = []

    def write(elements: list[Any], parts: list[bytes]) -> Iterator[None]:
        for _ in range(10):
            parts.extend([b"x"] * PARTS_AT_ONCE)
            lengths.append(len(parts))
            yield

    def spliced(shell: object, count: int, written: list[bytes], correlation_id: int) -> list[bytes]:
        return [b"%d " % count, *written]

    route = SimpleNamespace(element_writer=write, spliced_frame=spliced)
    answer = JoinedAnswer(cast(Any, route), cast(Any, SimpleNamespace(response="topics")))
    number = answer.expect(is_end=True)
    for _ in answer.add(number, SimpleNamespace(topics=["one"])):
        pass
    assert max(lengths) == PARTS_AT_ONCE
    assert b"".join(answer.frame(0)) == b"1 " + b"x" * 10 * PARTS_AT_ONCE and answer.size == 10 * PARTS_AT_ONCE


def test_the_first_error_keeps_its_message() -> None:
    answers = [DescribeClusterResponse(error_code=code, error_message=text) for code, text in [(0, None), (29, "denied"), (7, "late")]]
    for answer in answers[1:]:
        join_rest(answers[0], answer)
    assert (answers[0].error_code, answers[0].error_message) == (29, "denied")
