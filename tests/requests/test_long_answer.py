"""Answers that are put together from those of pieces; whole ones are compared in `tests/server/test_long_requests.py`."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla.base.errors import WireError
from ottla.requests.long_answer import LongAnswer


def test_a_piece_that_closes_the_connection_closes_it_for_the_whole() -> None:
    answer = LongAnswer(cast(Any, None), cast(Any, None))
    first, second = answer.expect(is_end=True), answer.expect(is_end=True)
    assert list(answer.add(first, None)) == []
    with pytest.raises(WireError, match="refused"):
        list(answer.add(second, WireError("refused")))
