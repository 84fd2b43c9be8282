"""Uuids in their text form: known pairs, round trips, and texts that are no uuids."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.uuids import METADATA_TOPIC_UUID, ZERO_UUID, fresh_uuid, uuid_from_text, uuid_to_text


def test_known_uuids() -> None:
    assert uuid_to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_text(METADATA_TOPIC_UUID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_to_text(b"\xff" * 16) == "_____________________w"


@given(st.binary(min_size=16, max_size=16))
def test_text_is_url_safe_base64_and_comes_back(uuid: bytes) -> None:
    text = uuid_to_text(uuid)
    assert text == base64.urlsafe_b64encode(uuid).decode().rstrip("=")
    assert uuid_from_text(text) == uuid
    assert uuid_from_text(text + "==") == uuid


@pytest.mark.parametrize("text", ["", "A", "AAAA", "A" * 21, "A" * 23, "A" * 24, "ключ", "AAAAAAAAAAAAAAAAAAAAA!", "A" * 44])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="base64"):
        uuid_from_text(text)


@given(st.binary(min_size=16, max_size=16))
def test_a_fresh_uuid_is_version_4_and_no_option(random_bytes: bytes) -> None:
    uuid = fresh_uuid(random_bytes)
    assert uuid[6] >> 4 == 4
    assert uuid[8] >> 6 == 2
    assert not uuid_to_text(uuid).startswith("-")
    assert uuid_from_text(uuid_to_text(uuid)) == uuid


def test_only_a_leading_dash_costs_randomness() -> None:
    assert uuid_to_text(fresh_uuid(b"\xf8" + bytes(15))).startswith("e")
    assert fresh_uuid(b"\xf4" + bytes(15))[0] == 0xF4
