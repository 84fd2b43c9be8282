"""Below which offset will every record survive? The leader's rule for moving the high watermark.

It is the smallest end of all replicas that are in sync or may be held to be so (`IsrState.maximal`), it never goes back while this
leader leads (I11), and it stands still while fewer than `min.insync.replicas` are in sync, so that what was acknowledged always stands
on that many replicas (I12, KIP-966). The leader's own end is where its log is durable when acknowledgements wait for the disk, else
where its log ends.
"""

from __future__ import annotations

from collections.abc import Iterable


def next_high_watermark(current: int, *, own_end: int, remote_ends: Iterable[int], in_sync: int, in_sync_min: int) -> int:
    """The new high watermark. `remote_ends`: log ends of the other members of the maximal ISR; `in_sync` counts the confirmed ones."""
    if in_sync < in_sync_min:
        return current
    lowest = own_end
    for end in remote_ends:
        if end < lowest:
            lowest = end
    return lowest if lowest > current else current
