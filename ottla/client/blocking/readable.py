"""Waits until sockets can be read or written, whatever the numbers of their descriptors.

`select.select` refuses descriptors from 1024 on, which a program with many files or connections has. `select.poll` accepts them. Windows
has only `select.select`, and no such limit.
"""

from __future__ import annotations

import select
from collections.abc import Collection, Sequence
from math import ceil


def readable(descriptors: Sequence[int], timeout_s: float) -> list[int]:
    """Waits until a descriptor is readable or closed by its peer, and returns all such descriptors; none after `timeout_s`."""
    return ready(descriptors, (), timeout_s)


def ready(reading: Collection[int], writing: Collection[int], timeout_s: float) -> list[int]:
    """Like `readable`, and also returns a descriptor in `writing` if its socket accepts data."""
    if not hasattr(select, "poll"):
        inputs, outputs, _ = select.select([*reading, *writing], writing, [], timeout_s)
        return list({*inputs, *outputs})
    poll = select.poll()
    for descriptor in reading:
        poll.register(descriptor, select.POLLIN)
    for descriptor in writing:
        poll.register(descriptor, select.POLLIN | select.POLLOUT)
    return [descriptor for descriptor, _ in poll.poll(ceil(timeout_s * 1000))]
