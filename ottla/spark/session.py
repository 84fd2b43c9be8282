"""Makes a Spark session for pipelines: checks requirements, finds Java, makes workers use the driver's Python interpreter by
default, and writes checkpoints on local disks quickly.

A missing requirement raises `MissingRequirementError` of one line, before Spark would fail with a stack trace.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from ottla.spark.errors import MissingRequirementError
from ottla.spark.java import java_home
from ottla.spark.java_output import filtered_stderr
from ottla.spark.least_spark import LEAST_SPARK


class Requirement(NamedTuple):
    """A package, its minimum version, and the first version that is not supported any more."""

    name: str
    least: tuple[int, ...]
    below: tuple[int, ...] = ()

    def __str__(self) -> str:
        least, below = (".".join(map(str, bound)) for bound in (self.least, self.below))
        return f"{self.name}>={least}" + (f",<{below}" if below else "")


REQUIREMENTS = (Requirement("pyspark", LEAST_SPARK), Requirement("pyarrow", (18,)), Requirement("pandas", (2, 2), (3,)))

PROTOBUF = Requirement("protobuf", (6, 33, 5))
"""Used only by `transformWithState`, in Spark's workers, so other pipelines work without it."""

INSTALL = "pip install " + " ".join(f"'{requirement}'" for requirement in (*REQUIREMENTS, PROTOBUF))
"""The command that installs the requirements. It is not `ottla[spark]`, because Ottla is in no package index."""

WORKER_IMPORTS = "import ottla.spark, pyspark_ottla, pyspark, pyarrow, pandas"
IMPORT_SECONDS_MAX = 60

WORKER_STARTUP = str(Path(__file__).parent / "worker_startup")
"""A directory on the workers' PYTHONPATH, so that they import the compiled modules of pyspark (`worker_startup/sitecustomize.py`)."""

SAID_BY_THE_FAILURE = "|".join([
    r"Aborting task",
    r"Abort(?:ing|ed) commit for partition .*",
    r"Exception in task .*",
    r".*Task \d+ in stage .* failed \d+ times; aborting job",
    r"Data source write support .* (?:is aborting|aborted)\.",
    r"Query .* terminated with error",
])  # fmt: skip
"""Messages that Java logs when a query fails, each with the same error; the error is reported afterwards (`QueryFailedError`)."""

CONTEXT_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""pyspark's loggers of errors with a place in a query. They write Java's stack traces: 12 kilobytes for a misspelled function."""

UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
"""Spark's setting for Unix sockets instead of TCP between Java and its Python workers: reading 1 KB rows is 1.4 times as fast."""

ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
"""Spark's setting for the size of the Arrow batches that Java sends to its Python workers. Versions before 4.1 ignore it."""

ARROW_BYTES_MAX = "2m"
"""2 MiB instead of Spark's 64 MiB. Spark also limits a batch to 10,000 rows, so this is for rows of more than 200 bytes: rows of 1 KB are
written with 5 to 20 % less CPU time (docs/performance.md)."""

CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
"""Spark's setting for the class that writes checkpoint files."""

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
LOCAL_FILE_SYSTEM = "fs.file.impl"
QUICK_CHECKPOINTS = {
    LOCAL_FILE_SYSTEM: "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",  # the cached one was made with the session's settings
}

_AS_PROPERTY = SAID_BY_THE_FAILURE.replace("\\", "\\\\")
_QUIET_LOGS = f"""rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex{{short}}
appender.stderr.filter.said.type = RegexFilter
appender.stderr.filter.said.regex = {_AS_PROPERTY}
appender.stderr.filter.said.onMatch = DENY
appender.stderr.filter.said.onMismatch = NEUTRAL
"""


def check_packages() -> None:
    """Imports Spark's requirements. Raises `MissingRequirementError` with the first package that is missing or of a wrong version."""
    for requirement in REQUIREMENTS:
        try:
            module = importlib.import_module(requirement.name)
        except ImportError as error:
            reason = "" if isinstance(error, ModuleNotFoundError) and error.name == requirement.name else f" ({error})"
            raise MissingRequirementError(f"{requirement.name} cannot be imported{reason}; install it: {INSTALL}") from None
        _check_version(requirement, str(module.__version__))


def _check_version(requirement: Requirement, text: str) -> None:
    version = tuple(int(part) for part in re.findall(r"\d+", text)[:3])
    least, below = (".".join(map(str, bound)) for bound in (requirement.least, requirement.below))
    if version < requirement.least:
        raise MissingRequirementError(f"{requirement.name} {text} is too old, {least} or later is needed: {INSTALL}")
    if requirement.below and version >= requirement.below:
        raise MissingRequirementError(f"{requirement.name} {text} is too new, a version before {below} is needed: {INSTALL}")


def prepare_environment(config: Mapping[str, str]) -> None:
    """Sets JAVA_HOME and PYSPARK_PYTHON for the Java process. A usable JAVA_HOME and the PYSPARK_PYTHON of the user are kept, but
    `spark.pyspark.python` in `config` takes precedence over PYSPARK_PYTHON. Raises `MissingRequirementError` if there is no usable Java, or
    if the chosen Python lacks a requirement.
    """
    home = java_home(os.environ)
    if home is not None:
        os.environ["JAVA_HOME"] = home
    if "spark.pyspark.python" in config:
        os.environ["PYSPARK_PYTHON"] = config["spark.pyspark.python"]  # Spark itself uses this setting only in spark-submit
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if python != sys.executable:
        check_worker_python(python)


@contextmanager
def workers_path() -> Iterator[None]:
    """Puts `WORKER_STARTUP` on the PYTHONPATH of a Java process that is started in the block; its workers inherit it."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = WORKER_STARTUP if not before else os.pathsep.join([WORKER_STARTUP, before])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def check_worker_python(python: str) -> None:
    """Checks that the user's interpreter for workers can import the requirements. Raises `MissingRequirementError` with the last line of
    the interpreter's error output.
    """
    try:
        done = subprocess.run([python, "-c", WORKER_IMPORTS], capture_output=True, text=True, timeout=IMPORT_SECONDS_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingRequirementError(f"PYSPARK_PYTHON: {python} does not run ({error}); unset it to use {sys.executable}") from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        advice = f"install Ottla there with what Spark needs ({INSTALL}), or unset PYSPARK_PYTHON"
        raise MissingRequirementError(f"PYSPARK_PYTHON: workers would run in {python}, and there: {reason}; {advice}")


def build_session(name: str = "ottla", *, master: str | None = None, config: Mapping[str, str] | None = None, is_quiet: bool = True) -> Any:
    """Returns the active Spark session (`pyspark.sql.SparkSession`), or a new session. If SPARK_REMOTE names a Spark Connect server, the
    new session is on this server.

    `master` defaults to Spark's configuration, else all cores of this machine. With `is_quiet` Java logs only errors and gives no warning
    of an incubator module (`java_output.py`), and pyspark does not log Java's trace of an error that it raises (`CONTEXT_LOGGERS`).
    """
    check_packages()
    loaded = sys.modules.get("pyspark.sql")
    active = loaded.SparkSession.getActiveSession() if loaded is not None else None
    if active is not None:
        return active
    settings = dict(config or {})
    if "SPARK_REMOTE" in os.environ:
        return _connect(name, settings)
    prepare_environment(settings)
    from pyspark.sql import SparkSession

    if master is not None:
        settings["spark.master"] = master
    elif not _is_configured("spark.master", "--master"):
        settings.setdefault("spark.master", "local[*]")
    settings.setdefault("spark.ui.showConsoleProgress", "false")
    if may_use_unix_sockets(settings):
        settings[UNIX_SOCKETS] = "true"
    if not is_chosen(ARROW_BYTES, settings):
        settings[ARROW_BYTES] = ARROW_BYTES_MAX
    builder = SparkSession.builder.appName(name)
    with tempfile.TemporaryDirectory(prefix="ottla-") as folder:
        if is_quiet:
            _silence(settings, Path(folder))
        for key, value in settings.items():
            builder = builder.config(key, value)
        with workers_path(), filtered_stderr() if is_quiet else nullcontext():
            session = builder.getOrCreate()
    if is_quiet:
        from pyspark.logger import PySparkLogger

        session.sparkContext.setLogLevel("ERROR")
        for logger in CONTEXT_LOGGERS:
            PySparkLogger.getLogger(logger).disabled = True
    register_source(session)
    return session


def register_source(session: Any) -> None:
    """Registers the format `ottla` in a session, in case Spark does not find it.

    Spark searches for Python sources once per Java process. If the worker that searches is killed or slow to start, Spark has none for the
    lifetime of the process.
    """
    from ottla.spark.data_source import OttlaDataSource
    from ottla.spark.spark_versions import register

    register(session, OttlaDataSource)


def _connect(name: str, settings: Mapping[str, str]) -> Any:
    """Returns a session on a Spark Connect server, which needs no Java here."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def may_use_unix_sockets(settings: Mapping[str, str]) -> bool:
    """Whether to set `UNIX_SOCKETS`. A value of the user is kept. Nothing is set if Java's temporary directory was changed, because the
    paths of sockets in the new directory may be too long."""
    is_moved = "java.io.tmpdir" in " ".join([
        *(value for name, value in settings.items() if name.endswith("JavaOptions")),
        *(os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "PYSPARK_SUBMIT_ARGS")),
    ])
    return os.name == "posix" and not is_moved and not is_chosen(UNIX_SOCKETS, settings)


def is_chosen(name: str, settings: Mapping[str, str]) -> bool:
    """Whether the user has set one of Spark's settings, in `settings` or in Spark's own configuration."""
    return name in settings or _is_configured(name, name)


def _is_configured(setting: str, argument: str) -> bool:
    """Whether Spark's own configuration has a setting, in spark-submit's arguments or in spark-defaults.conf."""
    if argument in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return True
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", ""), "conf")
    try:
        return setting in Path(folder, "spark-defaults.conf").read_text()
    except OSError:
        return False


def _silence(settings: dict[str, str], folder: Path) -> None:
    """Configures quiet logging for the driver's Java process, unless the user has a log configuration."""
    options = settings.get("spark.driver.extraJavaOptions", "")
    if "log4j" in options or "SPARK_CONF_DIR" in os.environ:
        return
    file = folder / "log4j2.properties"
    file.write_text(_QUIET_LOGS)
    settings["spark.driver.extraJavaOptions"] = f"{options} -Dlog4j2.configurationFile={file.as_uri()}".strip()


@contextmanager
def quick_checkpoints(session: Any) -> Iterator[None]:
    """Lets queries that are started within the block use Hadoop's local file system without checksums, if their session has
    `LOCAL_CHECKPOINTS`. Spark copies the session's settings when a query starts, so other queries and files are not affected.

    Spark writes two small files for each batch. Hadoop's usual file system for local paths adds a file with a checksum to each of them, and
    starts the program `chmod` four times. Hadoop's file system without checksums starts `chmod` twice. Spark's RocksDB state store needs
    the usual file system.
    """
    from ottla.spark.spark_versions import LOCAL_CHECKPOINTS

    settings = session.conf
    if (
        settings.get(CHECKPOINT_MANAGER, "") != LOCAL_CHECKPOINTS
        or "RocksDB" in settings.get(STATE_STORE, "")
        or settings.get(LOCAL_FILE_SYSTEM, "")
    ):
        yield
        return
    for name, value in QUICK_CHECKPOINTS.items():
        settings.set(name, value)
    try:
        yield
    finally:
        for name in QUICK_CHECKPOINTS:
            settings.unset(name)
