"""`ottla why` prints each reason with its evidence and what mends it. The reasons are in tests/analysis/test_why.py."""

from __future__ import annotations

from typing import Any


def test_the_reasons_are_printed(ottla: Any, topic: str) -> None:
    fine = ottla("why", "partition", topic)
    assert (fine.code, fine.out) == (0, f"{topic}: All replicas of 1 partition are in sync.\n  seen: 1 replica\n")
    bad = ottla("why", "writer", "nothing")
    assert bad.code == 1
    assert bad.out == (
        "nothing: no topic. There is no topic 'nothing'.\n  seen: UNKNOWN_TOPIC_OR_PARTITION\n  mend: ottla topic create nothing\n"
    )
    (reason,) = ottla("why", "writer", "nothing", "-o", "json").json()["reasons"]
    assert (reason["cause"], reason["level"], reason["mend"]) == ("no topic", "bad", "ottla topic create nothing")


def test_an_unknown_group_and_a_wrong_number(ottla: Any) -> None:
    assert "not found" in ottla("why", "reader", "nothing").err
    assert ottla("why", "reader", "nothing", "--seconds", "0").code == 2
