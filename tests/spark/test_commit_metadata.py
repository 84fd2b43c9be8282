"""The metadata of a commit can be parsed again, and metadata of other committers is not mistaken for it."""

from __future__ import annotations

import pytest

from ottla.spark.commit_metadata import CommitMetadata, parse_metadata


def test_what_was_written_is_read_back() -> None:
    metadata = CommitMetadata("0f9d2c6e-5c1e-4e0a-b6f5-6a7d2d9f3b11", 12, 4000, 250, "00c0ffee")
    assert parse_metadata(metadata.to_text()) == metadata
    assert parse_metadata(metadata._replace(topic_id="q2bPEP9tQHe4bbvrJwmLLg").to_text()) == metadata._replace(
        topic_id="q2bPEP9tQHe4bbvrJwmLLg"
    )
    assert parse_metadata(metadata._replace(apart="0123456789abcdef").to_text()) == metadata._replace(apart="0123456789abcdef")
    assert parse_metadata(metadata._replace(run="1a2b3c4d", restarts=3).to_text()) == metadata._replace(run="1a2b3c4d", restarts=3)


def test_it_is_far_below_the_limit_of_brokers() -> None:
    numbers = 2**63 - 1, 2**63 - 1, 2**63 - 1
    largest = CommitMetadata("0f9d2c6e-5c1e-4e0a-b6f5-6a7d2d9f3b11", *numbers, "ffffffff", 22 * "-", 16 * "-", "1a2b3c4d", 2**31)
    assert len(largest.to_text()) < 280


@pytest.mark.parametrize(
    "text",
    ["", "run 1", "[]", "7", '{"q":"x","b":1}', '{"q":1,"b":1,"s":0,"n":0,"d":""}', '{"q":"x","b":true,"s":0,"n":0,"d":""}'],
)
def test_texts_of_other_committers_are_not_metadata(text: str) -> None:
    assert parse_metadata(text) is None
