"""Runs the code blocks of one page, in order, in an empty directory, as a reader would who follows it line by line.

`python` blocks are scripts, or tests where they define some, and one that begins with `# conftest.py` holds for the tests after it; `sh`
blocks are scripts of bash that must succeed; `console` blocks are transcripts: what stands after `$ ` is run, and what it says has to be
what stands below it. `ottla` on the page is this source tree. The ports on a page are mapped to free ones, in both directions, so that
pages can be run side by side and beside a broker that is really there.

A command that ends in ` &`, or a block with `run="background"`, goes on until the page is done; one that starts a broker is waited for.
`kill -9 %1` means the first of them, as in a shell.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, Block

PORTS = ("9092", "9093", "9094", "9095", "9404", "2181", "8080")
CONFTEST = "# conftest.py\n"
SECONDS_MAX = 300
READY_SECONDS_MAX = 300
UNUSED_PLUGINS = ("cacheprovider", "randomly", "hypothesispytest", "xdist", "xdist.looponfail")
"""Plugins of pytest that are installed for our own tests, and that no page uses. Importing them takes half the time of a short run."""
SHIM = """\
#!/bin/sh
case "$1 $*" in
  start*--port*|start*--config*) ;;
  start*) set -- "$@" --port {port} ;;
  *) : "${{KAFKA_BOOTSTRAP_SERVERS:=localhost:{port}}}"; export KAFKA_BOOTSTRAP_SERVERS ;;
esac
exec {python} -m ottla.cli.main "$@"
"""
# What differs from run to run, and what is compared instead.
VOLATILE = (
    (r"\bin \d+ ms\b", "in N ms"),
    (r"\b(passed|failed) in \d+\.\d+s( \([\d:]+\))?", r"\1 in N s"),
    (r"\b\d{13}\b", "<ms>"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:?\d\d)?", "<time>"),
    (r"\bon\s+\d{4}-\d\d-\d\d,\s+in\s+\d+\s+days\b", "on <day>"),
    (r"\bid: [\w-]{22}(?!\S)", "id: <id>"),
    (r"\bcrc: \d+", "crc: <crc>"),
    (r"\d+\.\d+ (records/sec|MB/sec|ms)", r"<n> \1"),
    (r"ottla \d+\.\d+\.\d+\S*", "ottla <version>"),
    (r"\b127\.0\.0\.1:\d{5}\b", "127.0.0.1:<port>"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uuid>"),
    (r"[ \t]+", " "),
    (r" +\n", "\n"),
)


class PageFailed(AssertionError):
    """A block did not do what the page says."""


class PageRun:
    """The blocks of one page share a directory, ports and what runs in the background."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._background: list[subprocess.Popen[str]] = []
        self._ports = {port: str(_free_port()) for port in PORTS}
        binaries = directory / ".bin"
        binaries.mkdir()
        shim = binaries / "ottla"
        shim.write_text(SHIM.format(port=self._ports["9092"], python=sys.executable))
        shim.chmod(0o755)
        others = ("KAFKA_", "OTTLA_", "PYTEST_", "PYTHON", "NO_COLOR")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        paths = [str(binaries), str(Path(sys.executable).parent), kept["PATH"]]
        self._environment = {
            **kept, "PATH": os.pathsep.join(paths), "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "HOME": str(directory),
            # pytest-asyncio warns of it in every run, also on pages that do not use the plugin
            "PYTHONWARNINGS": "ignore:The configuration option",
        }  # fmt: skip

    def close(self) -> None:
        for process in self._background:
            _end_group(process)

    def run(self, block: Block) -> str:
        """Runs a block; answers its text, of a transcript with the output that it had this time. Raises `PageFailed`."""
        text = self._moved(block.text)
        if block.language == "console":
            return self._run_transcript(block)
        if block.attributes.get("run") == "background":
            self._start(text)
        elif block.language == "python":
            self._run_python(block, text)
        else:
            self._check(block, self._done(["bash", "-euo", "pipefail", "-c", text]))
        return block.text

    def _run_python(self, block: Block, text: str) -> None:
        if text.startswith(CONFTEST):
            (self.directory / "conftest.py").write_text(text)
            return
        is_test = re.search(r"^(async |    )?def test_", text, re.MULTILINE) is not None
        script = self.directory / (f"test_block_{block.line}.py" if is_test else f"block_{block.line}.py")
        script.write_text(text)
        pytest = ["-m", "pytest", "-q", *(word for plugin in UNUSED_PLUGINS for word in ("-p", f"no:{plugin}"))]
        self._check(block, self._done([sys.executable, *(pytest if is_test else []), script.name]))

    def _run_transcript(self, block: Block) -> str:
        made: list[str] = []
        differences: list[str] = []
        for command, said in transcript_of(block.text):
            output = self._said(self._moved(command))
            made.append(f"$ {command}\n{output}")
            if normal(output) != normal(said):
                differences.append(f"$ {command}\n--- the page:\n{said}--- now:\n{output}")
        if differences and not os.environ.get("OTTLA_REWRITE"):
            raise PageFailed(f"line {block.line}: " + "\n".join(differences))
        return "".join(made)

    def _said(self, command: str) -> str:
        if command.endswith(" &"):
            return self._moved_back(self._start("exec " + command.removesuffix(" &")))
        if killed := re.fullmatch(r"kill -9 %(\d)", command):
            _end_group(self._background[int(killed[1]) - 1])
            return ""
        return self._moved_back(self._done(["bash", "-c", command])[1])

    def _start(self, command: str) -> str:
        """Leaves a command running; what it says first, if it starts a broker."""
        with (self.directory / ".background.log").open("ab") as log:
            process = subprocess.Popen(
                ["bash", "-c", command], cwd=self.directory, env=self._environment, text=True, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self._background.append(process)
        if "ottla start" not in command:
            return ""
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], READY_SECONDS_MAX)[0]:
            raise PageFailed(f"nothing was said by: {command}")
        return process.stdout.readline()

    def _done(self, command: list[str]) -> tuple[int, str]:
        """Exit code and all that was said; what a command leaves behind ends with the page."""
        process = subprocess.Popen(
            command, cwd=self.directory, env=self._environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise PageFailed(f"not done within {SECONDS_MAX} s: {command[-1]}") from None
        finally:
            _end_group(process)
        return process.returncode, said

    def _check(self, block: Block, done: tuple[int, str]) -> None:
        code, said = done
        if code != 0:
            log = self.directory / ".background.log"
            behind = log.read_text()[-2000:] if log.exists() else ""
            raise PageFailed(f"line {block.line}: exit code {code}\n{said}\n{behind}")

    def _moved(self, text: str) -> str:
        for port, free in self._ports.items():
            text = re.sub(rf"(?<=:){port}\b|(?<=-port ){port}\b|(?<=zookeeper.data ){port}\b", free, text)
        return text

    def _moved_back(self, text: str) -> str:
        for port, free in self._ports.items():
            text = re.sub(rf"\b{free}\b", port, text)
        return text.replace(str(self.directory), "/srv/kafka")


def _end_group(process: subprocess.Popen[str]) -> None:
    """Ends what was started and all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def transcript_of(text: str) -> list[tuple[str, str]]:
    """Commands and what they said; a command goes on in the next line after a backslash."""
    pairs: list[tuple[str, str]] = []
    for line in text.splitlines(keepends=True):
        if line.startswith("$ "):
            pairs.append((line[2:].rstrip("\n"), ""))
        else:
            command, said = pairs[-1]
            pairs[-1] = (f"{command}\n{line.rstrip()}", "") if command.endswith("\\") and not said else (command, said + line)
    return pairs


def normal(output: str) -> str:
    for pattern, instead in VOLATILE:
        output = re.sub(pattern, instead, output)
    return output.strip()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
