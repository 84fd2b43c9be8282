"""The import contracts are kept, and each of them fails with a planted import. Every contract is tested on a copy of the tree with one
added import, because a contract that cannot fail is useless. Packages that do not exist yet are added too.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.sources import PACKAGE, ROOT

LINT = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"


def _lint(root: Path, contract: str | None = None) -> subprocess.CompletedProcess[str]:
    options = ["--no-cache", "--no-logo", *(["--contract", contract] if contract else [])]
    return subprocess.run([sys.executable, "-c", LINT, *options], cwd=root, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package and the contracts, to which tests add imports."""
    shutil.copytree(PACKAGE, tmp_path / "ottla", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tools").mkdir()
    for name in ("__init__.py", "import_contracts.py"):
        shutil.copy(ROOT / "tools" / name, tmp_path / "tools")
    return tmp_path


def test_the_contracts_hold() -> None:
    done = _lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 kept, 0 broken" in done.stdout


PLANTED = {
    "layers": [
        ("ottla/wire/planted.py", "from ottla.server import planted", "ottla.server.planted"),
        ("ottla/replication/planted.py", "from ottla.groups import planted", "ottla.groups.planted"),
        ("ottla/console/planted.py", "from ottla.testing import planted", "ottla.testing.planted"),
    ],
    "core": [
        ("ottla/replication/planted.py", "import time", "time"),
        ("ottla/base/planted.py", "def f() -> None:\n    from os import path", "os"),
        ("ottla/client/core/planted.py", "import socket", "socket"),
        ("ottla/client/core/planted.py", "from ottla.client.blocking.connection import Connection", "ottla.client.blocking.connection"),
    ],
    "node": [
        ("ottla/server/flusher.py", "from time import perf_counter_ns", "time"),
        ("ottla/server/coordinators.py", "from ottla.adapters import timers", "ottla.adapters.timers"),
        ("ottla/handlers/planted.py", "import socket", "socket"),
    ],
    "domain": [
        ("ottla/groups/classic/planted.py", "from ottla.wire.messages.join_group import J", "ottla.wire.messages.join_group"),
        ("ottla/transactions/planted.py", "from ottla.wire.messages.group_records import K", "ottla.wire.messages.group_records"),
        ("ottla/sharing/planted.py", "from ottla.wire.messages import share_fetch", "ottla.wire.messages.share_fetch"),
    ],
    "client": [
        ("ottla/cli/planted.py", "from ottla.server import planted", "ottla.server.planted"),
        ("ottla/console/planted.py", "from ottla.handlers import planted", "ottla.handlers.planted"),
    ],
    "spark": [
        ("ottla/spark/planted.py", "from ottla.storage import planted", "ottla.storage.planted"),
        ("ottla/spark/planted.py", "from ottla.client.core import partitioner", "ottla.client.core.partitioner"),
        ("ottla/spark/planted.py", "from ottla.client.errors import KafkaError", "ottla.client.errors"),
    ],
    "pyspark": [("ottla/cli/planted.py", "import pyspark", "pyspark")],
}
"""Imports that a contract forbids: the module, what is written into it, and the module that it imports."""


@pytest.mark.parametrize("contract", PLANTED)
def test_each_planted_import_breaks_its_contract(contract: str, copy: Path) -> None:
    modules = {module for module, _, _ in PLANTED[contract]}
    for package in {"server", "groups", "testing", "handlers", "storage", *(module.split("/")[1] for module in modules)}:
        _plant(copy / "ottla" / package, "x = 1\n")
    for module in modules:
        (copy / module).write_text("".join(f"{line}\n" for name, line, _ in PLANTED[contract] if name == module))
    done = _lint(copy, contract)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "0 kept, 1 broken" in done.stdout
    for module, _, imported in PLANTED[contract]:
        assert f"{module.removesuffix('.py').replace('/', '.')} -> {imported} " in done.stdout, done.stdout


def test_a_package_without_a_layer_is_refused(copy: Path) -> None:
    _plant(copy / "ottla" / "newcomer", "x = 1\n")
    done = _lint(copy, "layers")
    assert done.returncode == 1 and "newcomer" in done.stdout, done.stdout + done.stderr


def _plant(folder: Path, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").touch()
    (folder / "planted.py").write_text(text)


def test_the_start_command_alone_may_import_the_server(copy: Path) -> None:
    (copy / "ottla" / "cli" / "broker" / "start.py").write_text("import ottla.server\n")
    assert _lint(copy, "client").returncode == 0
    (copy / "ottla" / "cli" / "broker" / "stop.py").write_text("import ottla.server\n")
    assert _lint(copy, "client").returncode == 1
