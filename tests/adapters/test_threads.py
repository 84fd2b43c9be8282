"""Threads: what blocks runs beside the loop, its result comes back on it, and after the close nothing begins."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from ottla.adapters.threads import LoopThreads


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def test_the_result_comes_back_on_the_loop(loop: asyncio.AbstractEventLoop) -> None:
    threads, done = LoopThreads(loop), loop.create_future()
    threads.run(threading.get_ident, lambda worker: done.set_result((worker, threading.get_ident())))
    worker, deliverer = loop.run_until_complete(done)
    assert worker != deliverer == threading.get_ident()
    threads.close()


def test_the_close_waits_for_what_runs_and_lets_nothing_else_begin(loop: asyncio.AbstractEventLoop) -> None:
    threads, may_end = LoopThreads(loop), threading.Event()
    calls: list[str] = []

    def work() -> None:
        may_end.wait(60)
        calls.append("ran")

    threads.run(work, lambda _: None)
    threading.Timer(0.05, may_end.set).start()
    threads.close()
    assert calls == ["ran"]
    threads.run(lambda: calls.append("too late"), lambda _: calls.append("result"))
    loop.run_until_complete(asyncio.sleep(0))
    assert calls == ["ran"]
