"""What is published: the wheel, the source distribution, the extras, and installing from a git address."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from ottla.cli.console import console
from ottla.frames import packages
from ottla.spark.tables import formats
from tools import dist

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORTED_BY_OTHERS = {
    "PyJWT": "security/signing_keys.py, as jwt",
    "cryptography": "PyJWT, for signatures with keys",
    "pandas": "pyspark, for tables of Arrow",
    "protobuf": "pyspark, for the state of transformWithState",
    "duckdb": "frames/packages.py, by its name",
    "fastavro": "schemas/formats.py, by its name",
    "grpcio_tools": "schemas/formats.py, as a program",
    "jsonschema": "schemas/formats.py, by its name",
}
OPTIONS = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-compile"]
PIP = [sys.executable, "-m", "pip", "install", *OPTIONS]
"""Without dependencies and with the build tool that is here, so that no test needs a network. Modules that are used are compiled then."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dist.Distributions:
    return dist.build(ROOT, tmp_path_factory.mktemp("dist"))


def test_the_wheel_is_the_source_tree_and_says_what_it_is(built: dist.Distributions) -> None:
    metadata = dist.check_wheel(built.wheel, ROOT)
    assert (metadata["Name"], metadata["Version"]) == ("ottla", dist.version())
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Programming Language :: Python :: 3.13" in metadata.get_all("Classifier", [])
    assert metadata.get_all("Project-URL")
    assert metadata.get_all("Provides-Extra") == sorted(PROJECT["optional-dependencies"])


def test_a_wheel_that_differs_from_the_source_tree_is_noticed(built: dist.Distributions, tmp_path: Path) -> None:
    planted = tmp_path / built.wheel.name
    shutil.copy(built.wheel, planted)
    with zipfile.ZipFile(planted, "a") as archive:
        archive.writestr("ottla/stray.py", "")
    with pytest.raises(dist.DistError, match=r"ottla/stray\.py"):
        dist.check_wheel(planted, ROOT)


def test_the_source_distribution_builds_the_same_wheel(built: dist.Distributions, tmp_path: Path) -> None:
    dist.check_sdist(built, tmp_path)


def test_the_installed_wheel_does_its_work_alone(built: dist.Distributions, tmp_path: Path) -> None:
    place = tmp_path / "installed"
    subprocess.run([*PIP, "--target", str(place), str(built.wheel)], check=True, timeout=170)
    dist.smoke(Path(sys.executable), tmp_path, PYTHONPATH=str(place))


def test_the_size_of_an_environment_is_counted_by_package(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.99" / "site-packages"
    for name, size in (("big", 3), ("small", 1), ("small-1.0.dist-info", 1), ("pip", 9), ("setuptools", 9)):
        (packages / name / "inside").mkdir(parents=True)
        (packages / name / "inside" / "code.so").write_bytes(bytes(size * 1_000_000))
    found = dist.installed_parts(tmp_path)
    assert list(found) == ["big", "small", "metadata"]
    assert [round(megabytes) for megabytes in found.values()] == [3, 1, 1]
    assert round(dist.Installed("3.99", 1.0, found).megabytes) == 5


def test_the_smoke_test_fails_where_another_version_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "version", lambda: "9.9.9")
    with pytest.raises(dist.DistError, match="AssertionError"):
        dist.smoke(Path(sys.executable), tmp_path)


def test_it_can_be_installed_from_a_git_address(tmp_path: Path) -> None:
    repository, place = tmp_path / "repository", tmp_path / "installed"
    repository.mkdir()
    for name in ("ottla", "pyspark_ottla"):
        shutil.copytree(ROOT / name, repository / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, repository)
    git = ["git", "-C", str(repository), "-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "all"]):
        subprocess.run([*git, *command], check=True)
    subprocess.run([*PIP, "--target", str(place), f"git+file://{repository}"], check=True, timeout=170)
    command = [sys.executable, "-m", "ottla", "--version"]
    shown = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(place)}, capture_output=True, text=True, check=True)
    assert shown.stdout == f"ottla {dist.version()}\n"


def test_the_version_has_a_section_in_the_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    dist.check_changelog(text, dist.version())
    for wrong in ("9.9.9", "1.0"):
        with pytest.raises(dist.DistError, match="no section"):
            dist.check_changelog("## [1.0] - 2026-01-01\n\n## [0.9]\n\n- an entry\n", wrong)


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=;\[ ]", one)[0].replace("-", "_") for one in requirements}


def imported_by(folder: Path) -> set[str]:
    """The first part of every name that a module below this folder imports, wherever it does so."""
    statement = re.compile(r"^\s*(?:import|from) (\w+)", re.MULTILINE)
    return {name for path in folder.rglob("*.py") for name in statement.findall(path.read_text(encoding="utf-8"))}


def test_an_extra_brings_only_what_the_code_imports() -> None:
    extras = {name: names_of(wanted) for name, wanted in PROJECT["optional-dependencies"].items() if name not in ("all", "dev")}
    imported = imported_by(ROOT / "ottla") | IMPORTED_BY_OTHERS.keys()
    assert {name: sorted(wanted - imported) for name, wanted in extras.items() if wanted - imported} == {}
    assert PROJECT["optional-dependencies"]["all"] == [f"ottla[{','.join(sorted(extras))}]"]


INSTALL_FROM_AN_INDEX = re.compile(r"pip install [^\n`]*(?<![/\w.-])ottla(?![/\w.-])[^\n`]*")


def test_pages_and_messages_name_only_extras_that_exist_and_no_install_from_an_index() -> None:
    """No version is in an index yet, so that `pip install ottla` would install nothing, or something else."""
    for page in (*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("*ottla/**/*.py"), *ROOT.glob("examples/**/*.py")):
        text = page.read_text(encoding="utf-8")
        for extra in re.findall(r"(?:\bottla|'\.)\[(\w+(?:,\w+)*)\]", text):
            assert set(extra.split(",")) <= set(PROJECT["optional-dependencies"]), page
        assert not INSTALL_FROM_AN_INDEX.findall(text), page


def test_errors_name_the_packages_of_the_extras() -> None:
    """As pyproject does, so the command works in a checkout too."""
    commands = {"frame": packages.INSTALL, "console": console.INSTALL, "table": formats.INSTALL}
    for extra, command in commands.items():
        assert command.removeprefix("pip install ") == " ".join(f"'{one}'" for one in PROJECT["optional-dependencies"][extra])


def test_an_install_from_an_index_is_found() -> None:
    assert INSTALL_FROM_AN_INDEX.search("install it: pip install 'ottla[top]'")
    assert INSTALL_FROM_AN_INDEX.search("pip install ottla")
    assert not INSTALL_FROM_AN_INDEX.search("pip install git+file:///srv/git/ottla, pip install '.[spark]', pip install rich")
