"""A broker tries at its start, in a child, to import packages that it needs later. The broken packages here are real modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.adapters.dependencies import LATER, DependencyCheck, failure_of, why_not_loaded

NO_CPP = "libstdc++.so.6: cannot open shared object file: No such file or directory"


def test_the_packages_of_this_environment_can_be_loaded_and_stay_out_of_this_process() -> None:
    program = (
        "import sys\n"
        "from ottla.adapters.dependencies import DependencyCheck\n"
        "assert DependencyCheck().failure() == ''\n"
        "assert not {'re2', 'cramjam'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
    assert failure_of(LATER) == ""


def test_a_missing_package_is_named() -> None:
    assert DependencyCheck({"no_such_module": "no-such"}).failure() == (
        "the package no_such_module is missing; install it: pip install no-such"
    )


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        (NO_CPP, f"google-re2 cannot be loaded ({NO_CPP}); install the C++ library: apt install libstdc++6, or apk add libstdc++"),
        ("invalid ELF header\nmore", "google-re2 cannot be loaded (invalid ELF header); install it again for this Python: pip install"),
    ],
)
def test_a_package_that_cannot_be_loaded_says_what_to_install(reason: str, line: str) -> None:
    assert why_not_loaded("google-re2", ImportError(reason)).startswith(line)


@pytest.mark.parametrize("module", ["re2", "crc32c"])
def test_a_broker_does_not_start_with_a_broken_package(tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text(f"raise ImportError({NO_CPP!r}, name={module!r})\n")
    started = subprocess.run(
        [sys.executable, "-m", "ottla", "start", "--ephemeral", "--port", "0", "--log-level", "error"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (started.returncode, started.stdout, started.stderr.count("\n")) == (1, "", 1)
    assert "cannot be loaded (libstdc++" in started.stderr and "apt install libstdc++6" in started.stderr
