"""Refusals in the words of Kafka's tools."""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.cli.kafka_tools.usage import java_error, plain_message


def test_refusals_in_the_words_that_scripts_look_for() -> None:
    refused = ApiError(ErrorCode.NON_EMPTY_GROUP, "group 'g'")
    assert java_error(refused) == "org.apache.kafka.common.errors.GroupNotEmptyException: The group is not empty."
    assert java_error(ApiError(ErrorCode.INVALID_CONFIG, "no")) == "INVALID_CONFIG: no"
    assert plain_message(ApiError(ErrorCode.INVALID_CONFIG, "topic 't': Unknown: x")) == "Unknown: x"
    assert plain_message(ApiError(ErrorCode.INVALID_CONFIG, "Unknown: 'x': y")) == "Unknown: 'x': y"
