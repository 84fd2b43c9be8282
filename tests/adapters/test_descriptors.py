"""The limit of open descriptors is raised as far as it goes, and shared out so that the shares fit into it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.adapters.descriptors import share_out

PROGRAM = """
import resource
from ottla.adapters.descriptors import raise_limit
print(raise_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("soft", "hard"), [(64, 300), (300, 300)])
def test_the_soft_limit_is_raised_to_the_hard_one(soft: int, hard: int) -> None:
    script = f'ulimit -S -n {soft}; ulimit -H -n {hard}; exec "$0" -c "$1"'
    done = subprocess.run(["sh", "-c", script, sys.executable, PROGRAM], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split() == [str(hard)] * 3


@pytest.mark.parametrize("limit", [256, 1024, 20_000, 1 << 20])
@pytest.mark.parametrize("wanted", [0, 16, 100, 1 << 30])
def test_the_shares_fit(limit: int, wanted: int) -> None:
    shares = share_out(limit, wanted)
    assert 2 * shares.files + shares.connections <= limit
    assert shares.files >= 16 and shares.connections >= 16
    assert wanted == 0 or shares.files <= wanted
