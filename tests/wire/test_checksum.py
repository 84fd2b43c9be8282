"""CRC-32C: the known value, and that our import loads the same function as an ordinary import, without the modules which that import would
load."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import PathFinder

import pytest

from ottla.wire import checksum


def test_the_known_value_of_the_polynomial() -> None:
    assert checksum.crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("size", [0, 1, 7, 8, 61, 4096, 100_003])
def test_it_is_the_package_s_function(size: int) -> None:
    data = os.urandom(size)
    package = checksum.load_package()
    assert checksum.crc32c(data) == package(data)
    assert checksum.crc32c(memoryview(data)[size // 2 :], checksum.crc32c(data[: size // 2])) == package(data)


def test_without_the_compiled_part_in_its_place_the_package_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PathFinder, "find_spec", lambda *_: None)
    assert checksum._load() is checksum.load_package()


def test_the_front_of_the_package_is_not_imported() -> None:
    program = "import sys, ottla.wire.batch_header; print({'crc32c', 'importlib.metadata', 'argparse'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=False, env=_path())
    assert done.stdout.strip() == "set()", done.stderr


def _path() -> dict[str, str]:
    """Returns the module path of this interpreter, for an interpreter that does not read `.pth` files, which may import anything."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
