"""Which writes make a stored share state larger than there is memory for, and what is left out of them.

Acknowledgements out of order are remembered one by one, so a state grows with every hole between them. While all states of a broker take as
much memory as they may, a write is taken if it needs no more than its state has: one completed run at the start, which goes with the next
write, and behind it as many runs as before. Each state has room for one of those from its beginning (`RESERVED_BATCHES`). So a group whose
members acknowledge in order goes on, and so does one that fills its holes; only what makes more of them is refused.

Whatever can be done without is left out before that: how often available records were delivered, which begins anew with another leader,
and which of the completed records at the start were accepted. What was delivered stays done with: no completed record is left out.
"""

from __future__ import annotations

from ottla.base.share_state import DeliveryState, ShareState, StateBatch

LASTING_MIN = 1
"""Runs behind the start that every state may have."""
RESERVED_BATCHES = LASTING_MIN + 1


def spared(known: ShareState, after: ShareState) -> ShareState | None:
    """What a state becomes where it must not grow; None where it would all the same."""
    front, lasting = _front_and_lasting(after)
    if len(lasting) > max(len(_front_and_lasting(known)[1]), LASTING_MIN):
        return None
    if front:
        state = max(batch.delivery_state for batch in front)
        count = max(batch.delivery_count for batch in front)
        lasting.insert(0, StateBatch(front[0].first_offset, front[-1].last_offset, state, count))
    return after._replace(batches=tuple(lasting))


def _front_and_lasting(state: ShareState) -> tuple[list[StateBatch], list[StateBatch]]:
    """The completed batches that reach from the start without a hole, and those behind them."""
    completed = [batch for batch in state.batches if batch.delivery_state != DeliveryState.AVAILABLE]
    end, size = state.start_offset, 0
    for batch in completed:
        if batch.first_offset != end:
            break
        end, size = batch.last_offset + 1, size + 1
    return completed[:size], completed[size:]
