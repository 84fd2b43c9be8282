"""The process's own memory, where the system says it and where it does not."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from ottla.adapters.process_memory import resident_bytes, virtual_and_resident_bytes

MIB = 1 << 20


def test_what_was_allocated_is_resident() -> None:
    virtual, before = virtual_and_resident_bytes()
    held = bytearray(b"x") * (64 * MIB)
    assert resident_bytes() >= before + 32 * MIB
    assert virtual > before > 5 * MIB and len(held) == 64 * MIB


def test_without_proc_it_is_the_most_that_ever_was(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resident_bytes()

    def refuse(path: str, *_: Any, **__: Any) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(builtins, "open", refuse)
    found = resident_bytes()
    monkeypatch.undo()
    assert before * 9 // 10 <= found < before + 4096 * MIB
