"""The process's own memory, where the system says it and where it does not."""

from __future__ import annotations

import builtins
import mmap
from typing import Any

import pytest

from ottla.adapters.process_memory import give_back_free_memory, resident_bytes, virtual_and_resident_bytes

MIB = 1 << 20


def test_what_was_allocated_is_resident() -> None:
    virtual, before = virtual_and_resident_bytes()
    held = mmap.mmap(-1, 64 * MIB)  # pages of its own: an allocation may get pages that are resident already
    for at in range(0, len(held), mmap.PAGESIZE):
        held[at] = 1
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


def test_free_pieces_are_given_back() -> None:
    """A flood leaves pieces behind that the C library keeps, because something lies behind them."""
    pieces = [bytearray(b"x") * (64 << 10) for _ in range(2_000)]
    del pieces[::2], pieces[::2]
    give_back_free_memory()
    full = resident_bytes()
    del pieces[:-1]
    give_back_free_memory()
    assert resident_bytes() <= full - 16 * MIB
