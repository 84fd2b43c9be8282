"""The Python interpreter of Spark's workers on this machine.

Where neither PYSPARK_DRIVER_PYTHON nor PYSPARK_PYTHON is set, Spark starts the `python3` of the PATH. If a program's environment is not
activated, that is another interpreter. It has no Ottla, so Spark does not know the format (DATA_SOURCE_NOT_FOUND). Importing `ottla.spark`
therefore puts the directory of the program's interpreter first on the PATH, as an activation does. Executors on other machines do not
inherit the PATH and keep their own `python3`. They would get PYSPARK_PYTHON from the driver, with a path that may not exist there.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

CHOICES = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
"""Variables that name the interpreter of the workers that Java starts for the driver. The first one has precedence."""
DEFAULT = "python3"
START_SECONDS_MAX = 20

_MISSING = """
from importlib.util import find_spec
print("missing", *(name for name in ("pyspark_ottla", "ottla", "pyarrow") if find_spec(name) is None))
"""


def worker_python(environ: Mapping[str, str]) -> str:
    """Returns the interpreter that Spark would start, as a path; as it is written if there is no such program."""
    word = next((environ[name] for name in CHOICES if environ.get(name)), DEFAULT)
    return shutil.which(word, path=environ.get("PATH")) or word


def is_this_python(python: str) -> bool:
    """Whether a path leads into the environment of this interpreter. Environments may share the file, so their directories decide."""
    return os.path.realpath(os.path.dirname(python)) == os.path.realpath(os.path.dirname(sys.executable))


def prefer_this_python(environ: MutableMapping[str, str]) -> None:
    """Lets Spark's workers on this machine run in this interpreter, unless the user has chosen another one. Does nothing if the
    interpreter's directory has no `python3` of the same version."""
    directory = os.path.dirname(sys.executable)
    if any(environ.get(name) for name in CHOICES) or is_this_python(worker_python(environ)):
        return
    try:
        has_default = os.path.samefile(os.path.join(directory, DEFAULT), sys.executable)
    except OSError:
        has_default = False
    if has_default:
        environ["PATH"] = os.pathsep.join([directory, *filter(None, [environ.get("PATH")])])


def make_format_known() -> None:
    """Called when `ottla.spark` is imported: later sessions find the format through the PATH, a running one gets it registered."""
    before = worker_python(os.environ)
    prefer_this_python(os.environ)
    loaded = sys.modules.get("pyspark.sql")
    session = loaded.SparkSession.getActiveSession() if loaded is not None else None
    if session is not None and not is_this_python(before):
        _register_in(session)


def _register_in(session: Any) -> None:
    """Registers the format in a running session of this machine, with this interpreter for its workers. Does nothing on a cluster, with
    Spark Connect, or if the user has chosen an interpreter."""
    context = getattr(session, "sparkContext", None)
    if context is None or not _is_local(str(context.master)) or context.pythonExec != DEFAULT:
        return
    from ottla.spark.session import register_source

    context.pythonExec = sys.executable
    try:
        register_source(session)
    finally:
        context.pythonExec = DEFAULT


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def what_is_missing(python: str) -> str:
    """Returns, in a few words, what an interpreter lacks for the format ottla, or an empty text if nothing is missing."""
    import subprocess

    try:
        done = subprocess.run([python, "-c", _MISSING], capture_output=True, text=True, timeout=START_SECONDS_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run ({error})"
    first, *names = done.stdout.split() or [""]
    if first != "missing":
        return "is no Python"
    return f"has no {', '.join(names)}" if names else ""
