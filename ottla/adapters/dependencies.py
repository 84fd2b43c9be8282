"""Tests at the start of a broker whether the packages that it imports later can be loaded. For example, google-re2 cannot be loaded without
its C++ library.

A broker imports such a package with the first request that needs it, to save time and memory. A forked child imports all of them while the
broker starts. A package that cannot be loaded is therefore reported in one line at the start, and not by a failed request.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module

LATER: Mapping[str, str] = {"re2": "google-re2", "cramjam": "cramjam"}
"""The packages by the names of their modules."""

CPP_LIBRARY = "libstdc++"


class DependencyCheck:
    """A child process that imports the packages. `failure` must be called once."""

    def __init__(self, packages: Mapping[str, str] = LATER) -> None:
        self._reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._child = os.fork()
        if not self._child:
            _report(packages, writer)
        os.close(writer)

    def failure(self) -> str:
        """Waits for the child. Returns one line that says what to install, or an empty text if all packages can be loaded."""
        with os.fdopen(self._reader, encoding="utf-8", errors="replace") as reader:
            found = reader.read()
        with suppress(ChildProcessError):  # in a container, the first process may reap all children
            os.waitpid(self._child, 0)
        return found


def failure_of(packages: Mapping[str, str]) -> str:
    """Imports the packages. Returns one line for the first package that cannot be loaded, or an empty text if all can be loaded."""
    for module, package in packages.items():
        try:
            import_module(module)
        except ImportError as error:
            return why_not_loaded(package, error)
    return ""


def why_not_loaded(package: str, error: ImportError) -> str:
    """Returns one line that says what to install."""
    if isinstance(error, ModuleNotFoundError):
        return f"the package {error.name or package} is missing; install it: pip install {package}"
    reason = str(error).partition("\n")[0]
    if CPP_LIBRARY in reason:
        return f"{package} cannot be loaded ({reason}); install the C++ library: apt install libstdc++6, or apk add libstdc++"
    return f"{package} cannot be loaded ({reason}); install it again for this Python: pip install --force-reinstall {package}"


def _report(packages: Mapping[str, str], writer: int) -> None:
    """Writes the failure into the pipe and ends the child, whatever happens."""
    try:
        os.write(writer, failure_of(packages).encode())
    finally:
        os._exit(0)
