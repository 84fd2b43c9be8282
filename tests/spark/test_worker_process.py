"""A worker process of Spark excludes imported modules from garbage collection; other processes are not changed."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest

from ottla.spark import worker_process


@pytest.fixture(autouse=True)
def nothing_frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_process, "_frozen_counts", set())
    monkeypatch.setattr(worker_process, "keep_freed_memory", lambda: None)  # it cannot be undone
    gc.unfreeze()
    yield
    gc.freeze()


def run_as(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(module, None)
    monkeypatch.setitem(sys.modules, "__main__", main)


def test_a_worker_of_spark_freezes_what_it_has_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    run_as(monkeypatch, "pyspark.daemon")
    worker_process.freeze_imports()
    assert gc.get_freeze_count() > 0


def test_later_garbage_is_still_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    run_as(monkeypatch, "pyspark.daemon")
    worker_process.freeze_imports()
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    assert gc.collect() >= 1


def test_it_freezes_again_only_after_further_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    run_as(monkeypatch, "pyspark.daemon")
    worker_process.freeze_imports()
    gc.unfreeze()
    worker_process.freeze_imports()
    assert gc.get_freeze_count() == 0
    monkeypatch.setitem(sys.modules, "a_module_of_the_user", ModuleType("a_module_of_the_user"))
    worker_process.freeze_imports()
    assert gc.get_freeze_count() > 0


@pytest.mark.parametrize("module", ["pytest", "ottla.cli.main"])
def test_other_processes_are_left_alone(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    run_as(monkeypatch, module)
    worker_process.freeze_imports()
    assert gc.get_freeze_count() == 0
    assert not worker_process.is_worker_process()


def test_a_worker_keeps_freed_memory_from_the_first_freeze_on(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[str] = []
    monkeypatch.setattr(worker_process, "keep_freed_memory", lambda: kept.append(sys.modules["__main__"].__name__))
    worker_process.freeze_imports()
    assert kept == [], "this is no worker"
    run_as(monkeypatch, "pyspark.daemon")
    worker_process.freeze_imports()
    monkeypatch.setitem(sys.modules, "another_module_of_the_user", ModuleType("another_module_of_the_user"))
    worker_process.freeze_imports()
    assert kept == ["__main__"]


def test_no_threshold_is_above_the_limit_of_mallopt(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[int, int] = {}
    monkeypatch.undo()
    monkeypatch.setattr(worker_process.ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=given.__setitem__))
    worker_process.keep_freed_memory()
    m_trim_threshold, m_mmap_threshold, largest = -1, -3, 4 * 1024 * 1024 * ctypes.sizeof(ctypes.c_long)  # man 3 mallopt
    assert given.keys() == {m_trim_threshold, m_mmap_threshold}
    assert given[m_mmap_threshold] <= largest, "if it is refused, the other threshold alone makes glibc map and clear each buffer again"


BUFFERS = """
import resource, sys
from ottla.spark.worker_process import keep_freed_memory
if "keep" in sys.argv:
    keep_freed_memory()
def use():
    held = [bytearray(b"x" * (1 << 20)) for _ in range(4)]
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_buffers_stay_in_memory_that_is_there() -> None:
    faults = [
        int(subprocess.run([sys.executable, "-c", BUFFERS, *more], capture_output=True, check=True).stdout) for more in ([], ["keep"])
    ]
    assert faults[1] < faults[0] / 10, faults
