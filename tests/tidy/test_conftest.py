"""A missing foreign program is skipped for a person and fails in CI."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def test_a_missing_program_skips_here_and_fails_in_ci(need_program: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert need_program("sh").endswith("/sh")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="nothing-like-it is not installed"):
        need_program("nothing-like-it")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="in CI it has to be"):
        need_program("nothing-like-it")
