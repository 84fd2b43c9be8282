"""Computes Kafka's murmur2 of many keys at once, so that each key gets the same partition as with other producers.

The keys are processed longest first, four bytes of each per step, so that finished keys form the end of the array. When only a few long
keys are left, each is hashed alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ottla.client import murmur2

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_FEW = 32
"""Up to this many keys are hashed one by one, which is faster than the array operations."""


def hash_keys(keys: Any) -> Any:
    """Returns the murmur2 of each element of a pyarrow binary array (uint32); null has the hash of an empty key."""
    count = len(keys)
    _, ends, data = keys.buffers()
    bounds = np.frombuffer(ends, np.int32, count + 1, 4 * keys.offset).astype(np.int64)
    octets = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    starts, lengths = bounds[:-1], np.diff(bounds)
    if keys.null_count:
        lengths = np.where(keys.is_null().to_numpy(zero_copy_only=False), 0, lengths)
    if count and lengths.min() == lengths.max():
        return _hash_sorted(octets, starts, lengths)
    order = np.argsort(-lengths, kind="stable")
    hashes = np.empty(count, np.uint32)
    hashes[order] = _hash_sorted(octets, starts[order], lengths[order])
    return hashes


def _hash_sorted(octets: Any, starts: Any, lengths: Any) -> Any:
    """Hashes keys that are sorted longest first."""
    hashes = lengths.astype(np.uint32) ^ _SEED
    word_counts = lengths >> 2
    words = np.ndarray((max(len(octets) - 3, 0),), "<u4", octets.data, strides=(1,)) if len(octets) > 3 else np.zeros(0, np.uint32)
    turn, active = 0, len(lengths)
    while (active := int(np.searchsorted(-word_counts[:active], -turn, side="left"))) > _FEW:
        hashes[:active] = hashes[:active] * _M ^ _mixed(words[starts[:active] + 4 * turn])
        turn += 1
    _hash_tails(octets, starts, lengths, hashes)
    hashes = (hashes ^ hashes >> np.uint32(13)) * _M
    hashes ^= hashes >> np.uint32(15)
    for index in range(active):
        hashes[index] = murmur2(octets[starts[index] : starts[index] + lengths[index]].tobytes())
    return hashes


def _mixed(word: Any) -> Any:
    word = word * _M
    return (word ^ word >> np.uint32(24)) * _M


def _hash_tails(octets: Any, starts: Any, lengths: Any, hashes: Any) -> None:
    """Adds the last one to three bytes of each key, after its whole words."""
    rest = lengths & 3
    for size in (1, 2, 3):
        chosen = np.flatnonzero(rest == size)
        if len(chosen):
            at = starts[chosen] + (lengths[chosen] & ~3)
            tail = octets[at].astype(np.uint32)
            for place in range(1, size):
                tail |= octets[at + place].astype(np.uint32) << np.uint32(8 * place)
            hashes[chosen] = (hashes[chosen] ^ tail) * _M
