"""CRC-32C, the checksum of record batches. Loads the package `crc32c` without the imports that only its version and its command line need.

The package's `__init__` imports `importlib.metadata` and `argparse` (for its version and a command): 4 MiB of memory and a tenth of the
broker's start. This module loads only the compiled part, from the package's directory. If it is not there, the package is imported as
usual.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

_COMPILED = "crc32c._crc32c"

Checksum = Callable[..., int]


def _load() -> Checksum:
    package = find_spec("crc32c")
    compiled = PathFinder.find_spec(_COMPILED, package.submodule_search_locations) if package is not None else None
    if compiled is None or compiled.loader is None:
        return load_package()
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    found: Checksum = module.crc32c
    return found


def load_package() -> Checksum:
    """Returns `crc32c` from an ordinary import of the package."""
    from crc32c import crc32c

    return crc32c


crc32c: Checksum = _load()
"""`crc32c(data, value=0)` returns the CRC-32C of `data` as an unsigned integer. `value` is the CRC of the bytes before it."""
