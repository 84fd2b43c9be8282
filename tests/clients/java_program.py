"""Runs Java classes of Kafka and of `tests/clients/java` in a JVM. Kafka's jars are fetched by Maven, and the classes are built once into
`build/java`. The name of the build's directory has a hash of all sources, so they are built again after a change. One process builds, and
the others wait for it.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.clients.broker_process import ROOT
from tests.once import one_at_a_time

PROJECT = ROOT / "tests" / "clients" / "java"
BUILD = ROOT / "build" / "java"
BUILD_SECONDS, RUN_SECONDS = 600, 300


class Java:
    """Runs Java classes. `need_program` returns the JVM and Maven, or skips the test."""

    def __init__(self, need_program: Callable[[str], str]) -> None:
        self.program, self._javac, self._maven = need_program("java"), need_program("javac"), need_program("mvn")
        self.directory = self._built()

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a class."""
        return subprocess.run(self.command(name, *arguments), capture_output=True, text=True, timeout=RUN_SECONDS, check=False)

    def command(self, name: str, *arguments: str) -> list[str]:
        """Returns the command that runs a class. Its options shorten the start, because no class runs for long."""
        options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        return [self.program, *options, "-cp", f"{self.directory}/classes:{self.directory}/lib/*", name, *arguments]

    def _built(self) -> Path:
        sources = sorted(PROJECT.rglob("*.java"))
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in [PROJECT / "pom.xml", *sources])).hexdigest()[:16]
        there = BUILD / digest
        if there.is_dir():
            return there
        with one_at_a_time(BUILD):
            if not there.is_dir():
                making = Path(tempfile.mkdtemp(dir=BUILD))
                libraries = ["dependency:copy-dependencies", f"-DoutputDirectory={making}/lib", "-DincludeScope=runtime"]
                _succeed([self._maven, "-q", "-B", "-f", str(PROJECT / "pom.xml"), *libraries])
                _succeed([self._javac, "-d", f"{making}/classes", "-cp", f"{making}/lib/*", *map(str, sources)])
                making.rename(there)
        return there


def _succeed(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    assert done.returncode == 0, f"{command[0]} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
