"""A single broker's process does not import modules that it does not need, because imports decide its start time and memory. The tests
count modules and never seconds, because a busy machine must not make a test fail.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.tidy.sources import PACKAGE, ROOT

FORBIDDEN = ("rich", "pydantic", "kazoo", "starlette", "click", "typer", "pyspark", "pyarrow", "numpy", "kio", "re2", "crc32c")
ONLY_IN_CLUSTERS = {
    f"ottla.{name}"
    for name in (
        "adapters.zookeeper", "client.loop", "cluster.config_watch", "cluster.death_mark", "cluster.failure_detector",
        "cluster.handover", "cluster.isr_changes", "cluster.messenger", "cluster.replica_fetchers", "requests.forwarding",
        "security.cluster_identity", "server.cluster_links",
    )
}  # fmt: skip
LIST_MODULES = "import sys, json, importlib; importlib.import_module(sys.argv[1]); print(json.dumps(sorted(sys.modules)))"


def _imported_by(module: str) -> set[str]:
    command = [sys.executable, "-c", LIST_MODULES, module]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    return set(json.loads(done.stdout))


def test_the_package_itself_imports_nothing_of_ours() -> None:
    assert {name for name in _imported_by("ottla") if name.startswith("ottla")} == {"ottla"}


@pytest.mark.parametrize(
    "module", [f"ottla.{part}" for part in ("server.app", "cli.main") if (PACKAGE / f"{part.replace('.', '/')}.py").exists()] or ["ottla"]
)
def test_heavy_libraries_stay_out(module: str) -> None:
    assert sorted(set(FORBIDDEN) & _imported_by(module)) == []


def test_a_broker_that_is_alone_imports_nothing_that_only_a_cluster_needs() -> None:
    """A started single broker does not import modules that only a cluster needs, neither by its modules nor at its start."""
    program = (
        "import asyncio, json, sys, tempfile\n"
        "from ottla.base.config import load\n"
        "from ottla.server.app import BrokerServer\n"
        "async def main():\n"
        "    config, _ = load(assignments=['log.dirs=' + tempfile.mkdtemp(), 'listeners=PLAINTEXT://127.0.0.1:0'])\n"
        "    server = BrokerServer(asyncio.get_running_loop(), config)\n"
        "    server.start()\n"
        "    await server.ready\n"
        "    print(json.dumps(sorted(sys.modules)))\n"
        "    await server.stop()\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    assert sorted(ONLY_IN_CLUSTERS & set(json.loads(done.stdout.splitlines()[-1]))) == []
