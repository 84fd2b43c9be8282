"""Lists and runs the checks, one after another. Only the check of the time-out waits in a separate thread.

If the client reports an error that a check does not expect, the check has failed. Errors of the stock client in `UNAVAILABLE` are the
exception.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.base.errors import ApiError
from ottla.cli.check.eos.promises import (
    aborted_is_hidden,
    all_or_nothing,
    late_end_touches_nothing,
    offsets_follow_the_transaction,
    open_holds_back,
    retry_writes_once,
    time_out_is_enforced,
    zombie_is_fenced,
)
from ottla.cli.check.eos.world import FAIL, NOT_SUPPORTED, PASS, UNCLEAR, Inconclusive, NotSupported, Verdict, Violation, World
from ottla.client.errors import ClientError


class Check(NamedTuple):
    name: str
    promise: str
    run: Callable[[World], str]
    is_slow: bool = False


CHECKS = (
    Check("aborted-hidden", "Aborted records are hidden from read_committed readers.", aborted_is_hidden),
    Check("open-holds-back", "An open transaction holds read_committed readers back.", open_holds_back),
    Check("zombie-fenced", "A replaced producer is fenced, and its records never show.", zombie_is_fenced),
    Check("offsets", "Offsets sent in a transaction count if it commits, and only then.", offsets_follow_the_transaction),
    Check("timeout", "A forgotten transaction is aborted after its time-out.", time_out_is_enforced, is_slow=True),
    Check("atomicity", "Of a transaction over partitions and topics all records show, or none.", all_or_nothing),
    Check("late-end", "A delayed EndTxn does not touch a later transaction.", late_end_touches_nothing),
    Check("retry", "A batch sent again after a cut connection is written once.", retry_writes_once),
)

UNAVAILABLE = frozenset(
    (
        "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "_TRANSPORT", "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT",
    )
)  # fmt: skip
"""Errors of a cluster with failed brokers or partitions. After such an error of the stock client a check is unclear, not failed."""


def run_checks(world: World, checks: tuple[Check, ...] = CHECKS) -> Iterator[Verdict]:
    """Yields the verdicts; slow checks are started first and awaited last."""
    slow = [_CheckThread(check, world) for check in checks if check.is_slow]
    for check in checks:
        if not check.is_slow:
            yield run_check(check, world)
    for beside in slow:
        yield beside.verdict()


class _CheckThread:
    """Runs a check in a separate thread."""

    def __init__(self, check: Check, world: World) -> None:
        self._found: list[Verdict] = []
        self._thread = threading.Thread(target=lambda: self._found.append(run_check(check, world)), daemon=True)
        self._thread.start()

    def verdict(self) -> Verdict:
        self._thread.join()
        return self._found[0]


def run_check(check: Check, world: World) -> Verdict:
    start = time.monotonic()
    try:
        verdict, detail = PASS, check.run(world)
    except NotSupported as reason:
        verdict, detail = NOT_SUPPORTED, str(reason)
    except Violation as reason:
        verdict, detail = FAIL, str(reason)
    except Inconclusive as reason:
        verdict, detail = UNCLEAR, str(reason)
    except world.kafka.KafkaException as error:
        name = error.args[0].name()
        verdict, detail = UNCLEAR if name in UNAVAILABLE else FAIL, f"the client got {name}: {error.args[0].str()}"
    except (ApiError, ClientError) as error:
        verdict, detail = FAIL, f"the client got {error}"
    return Verdict(check.name, verdict, " ".join(detail.split()), round(time.monotonic() - start, 1))
