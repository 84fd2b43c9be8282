"""Valid and invalid names of topics."""

from __future__ import annotations

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.controller.topic_names import check_topic_name, metric_name, why_invalid


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "x" * 249, "...", "__consumer_offsets"])
def test_allowed(name: str) -> None:
    assert why_invalid(name) == ""


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a/b", "a b", "a\0", "\u00e9", "a:b", "a\n"])
def test_refused(name: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(caught.value.message) < 300


def test_a_dot_and_an_underscore_are_the_same_in_metrics() -> None:
    assert metric_name("a.b") == metric_name("a_b") == "a_b"
