"""Broker lists as people write them."""

from __future__ import annotations

import pytest

from ottla.client.addresses import Address, parse_address, parse_addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", Address("localhost", 9092)),
        ("a:1", Address("a", 1)),
        ("a.b.:1", Address("a.b.", 1)),
        ("PLAINTEXT://a:1", Address("a", 1)),
        ("[::1]:7", Address("::1", 7)),
        ("::1", Address("::1", 9092)),
    ],
)
def test_addresses(text: str, expected: Address) -> None:
    assert parse_address(text) == expected


def test_a_list_skips_blanks() -> None:
    assert parse_addresses(" a:1, ,b ") == [Address("a", 1), Address("b", 9092)]


@pytest.mark.parametrize("text", ["", ",", "a:b", ":9092", "a:0", "a:65536", "[::1", "[::1]x", "a:²", "a..b:1", ".a", f"{'x' * 64}:1"])
def test_malformed_addresses_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT") as caught:
        parse_addresses(text)
    assert "\n" not in str(caught.value)


def test_ipv6_is_shown_in_brackets() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"
