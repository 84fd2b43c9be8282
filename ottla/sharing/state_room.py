"""Shrinks writes of share states at the memory limit, and finds the writes that cannot be taken.

Acknowledgements out of order are stored as runs, so each gap between them makes a state larger. At the memory limit a write is accepted if
the state then has no more runs than before. One completed run at the start is not counted, because the next write removes it. Each state
has reserved memory for this run and one more (`RESERVED_BATCHES`). Groups with acknowledgements in order, or that fill gaps, therefore
continue; only writes that make more gaps are refused.

Before a write is refused, its state is reduced: it loses the delivery counts of available records, and the difference between accepted and
archived records in the completed run at the start. Completed records are never dropped. Records that are still to be copied to the
dead-letter topic are not completed, but are never dropped either.
"""

from __future__ import annotations

from ottla.base.share_state import DeliveryState, ShareState, StateBatch

LASTING_MIN = 1
"""Number of completed runs behind the start that every state may have."""
RESERVED_BATCHES = LASTING_MIN + 1


def spared(known: ShareState, after: ShareState) -> ShareState | None:
    """Returns the state `after` a write, reduced. Returns None if it would have more completed runs behind the start than `known`, or than
    `LASTING_MIN`.
    """
    front, lasting = _front_and_lasting(after)
    if len(lasting) > max(len(_front_and_lasting(known)[1]), LASTING_MIN):
        return None
    if front:
        state = max(batch.delivery_state for batch in front)
        count = max(batch.delivery_count for batch in front)
        lasting.insert(0, StateBatch(front[0].first_offset, front[-1].last_offset, state, count))
    return after._replace(batches=tuple(lasting))


def _front_and_lasting(state: ShareState) -> tuple[list[StateBatch], list[StateBatch]]:
    """Returns the completed batches that are contiguous from the start, and the other batches that must be kept."""
    kept = [batch for batch in state.batches if batch.delivery_state != DeliveryState.AVAILABLE]
    end, size = state.start_offset, 0
    for batch in kept:
        if batch.first_offset != end or batch.delivery_state == DeliveryState.ARCHIVING:
            break
        end, size = batch.last_offset + 1, size + 1
    return kept[:size], kept[size:]
