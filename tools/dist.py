"""Builds wheel and source distribution into dist/, checks both, and tries the wheel in an empty environment of each Python found.

`make dist` runs it. A release is right if all of this holds: the metadata are what pyproject.toml and the index want (`twine check`),
CHANGELOG.md has a section for the version, the wheel holds exactly the packages of the source tree, the source distribution builds the same
wheel byte for byte, and the installed wheel does its work (`tools/wheel_smoke.py`) with nothing but its declared dependencies.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("ottla", "pyspark_ottla")
MINOR_VERSIONS = (11, 12, 13, 14)
INSTALL_SECONDS_GOAL = 5.0
INSTALLED_MB_GOAL = 30.0
MB = 1e6
PART_SHOWN_MB = 1.0
"""Size in MB of the smallest part that is printed. The goals above are only printed beside the measured figures: the time depends on the
network, and most of the size on the dependencies.
"""


class DistError(Exception):
    """The distributions must not be published. The message says why."""


class Distributions(NamedTuple):
    """The paths of both distributions."""

    wheel: Path
    sdist: Path


class Installed(NamedTuple):
    """The result of installing the wheel with its dependencies into an empty environment."""

    python: str
    seconds: float
    parts: dict[str, float]
    """Megabytes (1,000,000 bytes) of each package's files, including the byte code that pip has compiled."""

    @property
    def megabytes(self) -> float:
        return sum(self.parts.values())


def build(source: Path, destination: Path) -> Distributions:
    """Builds both distributions of a source tree into the empty directory `destination`, with the hatchling of this environment."""
    _run([sys.executable, "-m", "hatchling", "build", "-d", str(destination)], cwd=source)
    (wheel,) = destination.glob("*.whl")
    (sdist,) = destination.glob("*.tar.gz")
    return Distributions(wheel, sdist)


def version() -> str:
    found = re.search(r'__version__ = "(.+)"', (ROOT / "ottla" / "_version.py").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def check_changelog(text: str, version: str) -> None:
    """Raises `DistError` unless the version has a section with at least one entry."""
    found = re.search(rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None or not re.search(r"^- ", found[1], re.MULTILINE):
        raise DistError(f"CHANGELOG.md has no section [{version}] with entries")


def check_wheel(wheel: Path, source: Path) -> Message:
    """Returns the wheel's metadata. Raises `DistError` unless the wheel has exactly the files of the source tree's packages, and its own
    metadata files.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"ottla-{version()}.dist-info"
        packed = {name for name in names if not name.startswith(info)}
        expected = {path.relative_to(source).as_posix() for package in PACKAGES for path in _package_files(source / package)}
        if packed != expected:
            raise DistError(f"{wheel.name} differs from the source tree: {sorted(packed ^ expected)[:5]}")
        wanted = {f"{info}/{name}" for name in ("METADATA", "entry_points.txt", "licenses/LICENSE")}
        if missing := wanted - names:
            raise DistError(f"{wheel.name} lacks {sorted(missing)}")
        return Parser().parsestr(archive.read(f"{info}/METADATA").decode())


def _package_files(package: Path) -> list[Path]:
    return [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"]


def check_sdist(built: Distributions, scratch: Path) -> None:
    """Builds the wheel again from the source distribution. Raises `DistError` unless it is the same, byte for byte."""
    with tarfile.open(built.sdist) as archive:
        archive.extractall(scratch, filter="data")
    (unpacked,) = scratch.iterdir()
    again = build(unpacked, scratch / "again")
    if _digest(again.wheel) != _digest(built.wheel):
        raise DistError(f"{built.sdist.name} builds another wheel than the source tree")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pythons() -> dict[str, str]:
    """Returns the interpreters of this machine by version (`3.11` and so on), from PATH or else from pyenv."""
    found: dict[str, str] = {}
    for minor in MINOR_VERSIONS:
        installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/3.{minor}.*/bin/python")
        for candidate in (shutil.which(f"python3.{minor}"), *map(str, sorted(installed, reverse=True))):
            if candidate is not None and _is_usable(candidate, minor):
                found[f"3.{minor}"] = candidate
                break
    return found


def _is_usable(python: str, minor: int) -> bool:
    code = f"import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, {minor}))"
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def try_wheel(wheel: Path, python: str, directory: Path) -> Installed:
    """Installs the wheel, with dependencies from the registry, into a new environment, and runs the smoke test there. Raises `DistError` if
    one fails.
    """
    _run([python, "-m", "venv", str(directory)], cwd=directory.parent)
    program = directory / "bin" / "python"
    started = time.monotonic()
    _run([str(program), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)], cwd=directory)
    seconds = time.monotonic() - started
    parts = installed_parts(directory)
    smoke(program, directory)
    return Installed(python, seconds, parts)


def smoke(program: Path, directory: Path, **environment: str) -> None:
    """Runs the smoke test with an interpreter that has Ottla installed. Raises `DistError` if it fails."""
    copied = shutil.copy(ROOT / "tools" / "wheel_smoke.py", directory)
    _run([str(program), str(copied), version()], cwd=directory, environment=environment)


def installed_parts(environment: Path) -> dict[str, float]:
    """Returns the megabytes of each installed folder, the largest first. pip and setuptools do not count, because an empty environment has
    them as well.
    """
    (packages,) = environment.glob("lib/python*/site-packages")
    found: dict[str, float] = {}
    for one in packages.iterdir():
        if not one.name.startswith(("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")):
            name = "metadata" if one.name.endswith(".dist-info") else one.name
            found[name] = found.get(name, 0.0) + sum(path.lstat().st_size for path in (one, *one.rglob("*"))) / MB
    return dict(sorted(found.items(), key=lambda part: -part[1]))


def _run(command: Sequence[str], *, cwd: Path, environment: dict[str, str] | None = None) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KAFKA_", "OTTLA_"))}
    done = subprocess.run(
        command, cwd=cwd, env={**kept, **(environment or {})}, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode != 0:
        raise DistError(f"{' '.join(command)} ended with exit code {done.returncode}:\n{done.stdout}")


def make() -> None:
    """Builds and checks both distributions: all of `make dist`. Raises `DistError`."""
    destination = ROOT / "dist"
    shutil.rmtree(destination, ignore_errors=True)
    check_changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version())
    built = build(ROOT, destination)
    metadata = check_wheel(built.wheel, ROOT)
    _run([sys.executable, "-m", "twine", "check", "--strict", *map(str, built)], cwd=ROOT)
    with tempfile.TemporaryDirectory(prefix="ottla-dist-") as scratch:
        check_sdist(built, Path(scratch))
    print(f"{built.wheel.name} and {built.sdist.name}: metadata, contents and the wheel built from the source distribution are right")
    found = pythons()
    for name in (f"3.{minor}" for minor in MINOR_VERSIONS):
        print(_tried(built.wheel, found[name], name) if name in found else f"Python {name}: not on this machine, not tried")
    if not found:
        raise DistError("no Python was found to try the wheel with")
    if not any("Source" in url for url in metadata.get_all("Project-URL") or ()):
        print("Before you publish: [project.urls] has no Source, because the repository has no public address yet")


def _tried(wheel: Path, python: str, name: str) -> str:
    with tempfile.TemporaryDirectory(prefix="ottla-dist-") as scratch:
        one = try_wheel(wheel, python, Path(scratch) / "environment")
    goals = f"goals: {INSTALL_SECONDS_GOAL:.0f} s, {INSTALLED_MB_GOAL:.0f} MB"
    parts = ", ".join(f"{part} {megabytes:.1f}" for part, megabytes in one.parts.items() if megabytes >= PART_SHOWN_MB)
    return (
        f"Python {name}: installed in {one.seconds:.1f} s, {one.megabytes:.1f} MB with dependencies ({parts}; {goals}); smoke test passed"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m tools.dist", description=make.__doc__).parse_args(arguments)
    try:
        make()
    except DistError as error:
        print(f"make dist: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
