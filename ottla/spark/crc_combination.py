"""Computes the CRC-32C of two concatenated pieces of data from their CRCs and the length of the second.

A CRC is the remainder of a polynomial over the field GF(2). Appending n bytes multiplies a polynomial by x to the power of 8n. The driver
can therefore compute the checksum of the output of several tasks without its bytes. The cost is some hundred steps, whatever the length.
"""

from __future__ import annotations

POLYNOMIAL = 0x82F63B78
"""The polynomial of CRC-32C (Castagnoli), with the highest power in the lowest bit."""

_ONE = 1 << 31
_BITS = 32
_POWERS_MAX = 48
"""Number of powers: enough for pieces of 32 TiB."""


def _multiply(a: int, b: int) -> int:
    product = 0
    for _ in range(_BITS):
        if a & _ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ POLYNOMIAL if b & 1 else b >> 1
    return product


def _squares() -> tuple[int, ...]:
    """Returns x to the power of 1, 2, 4, 8 and so on."""
    found = [_ONE >> 1]
    while len(found) < _POWERS_MAX:
        found.append(_multiply(found[-1], found[-1]))
    return tuple(found)


_POWERS = _squares()


def _power_of_bytes(length: int) -> int:
    power, at = _ONE, 3  # a byte has 2 to the power of 3 bits
    while length:
        if length & 1:
            power = _multiply(_POWERS[at], power)
        length >>= 1
        at += 1
    return power


def combine_crc32c(first: int, second: int, second_length: int) -> int:
    return _multiply(_power_of_bytes(second_length), first) ^ second
