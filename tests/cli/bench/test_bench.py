"""`ottla bench`: what is wrong usage."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Ottla


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["producer", "--topic", "t", "--num-records", "1"], "give exactly one of --record-size"),
        (["producer", "--topic", "t", "--num-records", "0", "--record-size", "1"], "--num-records must be 1 or more"),
        (["producer", "--topic", "t", "--num-records", "1", "--record-size", "0"], "--record-size must be 1 or more"),
        (["producer", "--topic", "t", "--num-records", "1", "--payload-file", "/nowhere"], "cannot read /nowhere"),
        (["consumer", "--num-records", "1"], "give --topic or --include"),
        (["e2e", "--topic", "t", "--num-records", "0"], "must be 1 or more"),
    ],
)
def test_wrong_usage(ottla: Ottla, words: list[str], message: str) -> None:
    result = ottla("bench", *words)
    assert result.code == 2 and message in result.err and result.err.count("\n") == 1
