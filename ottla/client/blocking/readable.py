"""Waits until sockets have something to read, whatever the numbers of their descriptors.

`select.select` refuses descriptors from 1024 on, which a program with many files or connections has. `select.poll` takes them; Windows has
no such function, and no such bound.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from math import ceil


def readable(descriptors: Sequence[int], timeout_s: float) -> list[int]:
    """Waits until a descriptor is readable or closed by its peer, and returns all such descriptors; none after `timeout_s`."""
    if not hasattr(select, "poll"):
        return select.select(descriptors, [], [], timeout_s)[0]
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(ceil(timeout_s * 1000))]
