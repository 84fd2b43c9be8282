"""Runs ZooKeeper as processes of this machine: one server or an ensemble of Apache ZooKeeper, or this project's own server
(`ottla.zookeeper_server`).

The jars are Debian's (package `zookeeper`, in `/usr/share/java`) or the jars of the Apache release in `ZOOKEEPER_HOME`. Servers listen only
on the loopback address, on ports below the system's range for outgoing connections, so that a stopped server finds its port free again.
Each has its own directory with `zoo.cfg`, data and log, and keeps its data over restarts.

A server is ready when it accepts writes, which an ensemble does once it has a leader. Ticks are short (500 ms), and sessions may be as
short as one tick. Writes to Apache ZooKeeper are not synced: they survive the kill of a process but not a crash of the machine.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from ottla.testing.process import ChildProcess

HOST = "127.0.0.1"
TICK_MS = 500
PORTS = range(20_000, 32_000)
PORT_ATTEMPTS = 200
START_ATTEMPTS = 5
START_SECONDS_MAX = 60.0
ANSWER_SECONDS_MAX = 2.0
POLL_SECONDS = 0.02

DEBIAN_JARS = Path("/usr/share/java")
DEBIAN_JAR = "zookeeper.jar"  # its manifest names most of the others
DEBIAN_OTHER_JARS = ("log4j-1.2.jar", "slf4j-simple.jar", "netty-codec.jar", "netty-resolver.jar")
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JVM_OPTIONS = (
    "-Xmx64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=512",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
CHANCE = random.SystemRandom()
"""Random numbers for ports. Not the seeded generator, because processes that run the same tests concurrently must choose different ports.
"""

ADDRESS_IN_USE = "address already in use"
EMBEDDED_FILE = "metadata.sqlite"
APACHE_FOLDER = "data"


class ZooKeeperMissing(Exception):
    """No ZooKeeper or no Java on this machine; the message is one line that names the package."""


class ZooKeeperDidNotStart(Exception):
    """The server ended or did not answer; the message has the end of its log."""


class PortTaken(ZooKeeperDidNotStart):
    """Another process has one of the server's ports."""


def class_path(environment: Mapping[str, str] = os.environ, debian: Path = DEBIAN_JARS) -> str:
    """Returns the JVM's class path with ZooKeeper. Raises `ZooKeeperMissing`."""
    home = environment.get("ZOOKEEPER_HOME")
    if home:
        if not any(Path(home, "lib").glob("zookeeper*.jar")):
            raise ZooKeeperMissing(f"ZOOKEEPER_HOME={home} has no lib/zookeeper*.jar; unset it and install the package zookeeper")
        return os.pathsep.join((f"{home}/lib/*", f"{home}/*"))
    if not (debian / DEBIAN_JAR).exists():
        raise ZooKeeperMissing("there is no ZooKeeper here: install the package zookeeper (apt install zookeeper), or set ZOOKEEPER_HOME")
    found = [debian / name for name in (DEBIAN_JAR, *DEBIAN_OTHER_JARS)]
    return os.pathsep.join(str(path) for path in found if path.exists())


def java(environment: Mapping[str, str] = os.environ) -> str:
    """Returns the path of the Java program. Raises `ZooKeeperMissing`."""
    home = environment.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else environment.get("PATH"))
    if found is None:
        raise ZooKeeperMissing("ZooKeeper needs Java: install the package default-jre-headless")
    return found


def free_port() -> int:
    """Returns a port of the loopback address that is free now. Raises `ZooKeeperDidNotStart` if no free port is found."""
    for _ in range(PORT_ATTEMPTS):
        port = CHANCE.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        return port
    raise ZooKeeperDidNotStart(f"no free port found between {PORTS.start} and {PORTS.stop}")


class ServerProcess(ChildProcess, ABC):
    """A server of ZooKeeper's protocol as a process."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "zookeeper.log")
        self.directory = directory
        self.port = free_port()
        self._is_port_fixed = False

    @property
    def connect(self) -> str:
        return f"{HOST}:{self.port}"

    @abstractmethod
    def _prepare(self) -> Sequence[str]:
        """Writes what the server needs, and returns its command."""

    def start(self, seconds_max: float = START_SECONDS_MAX) -> Self:
        """Starts the server and waits until it accepts writes. If another process has taken the port, the first start chooses another port,
        and later starts try the same port again. Raises `ZooKeeperDidNotStart`.
        """
        deadline = time.monotonic() + seconds_max
        has_started = self._is_port_fixed
        for attempt in range(START_ATTEMPTS):
            self.launch()
            try:
                self.wait_until_ready(deadline - time.monotonic())
            except PortTaken:
                if attempt + 1 == START_ATTEMPTS:
                    raise
                if not has_started:
                    self.port = free_port()
            else:
                return self
        raise AssertionError("the last attempt returns or raises")

    def launch(self) -> None:
        assert not self.is_running
        self.directory.mkdir(parents=True, exist_ok=True)
        self._launch(self._prepare(), self.directory, os.environ, is_new_log=True, output=None)

    def wait_until_ready(self, seconds_max: float = START_SECONDS_MAX) -> None:
        """Waits until the server accepts writes. Kills a server that does not accept writes in time. Raises `ZooKeeperDidNotStart`."""
        deadline = time.monotonic() + seconds_max
        while self.ask("isro") != "rw":
            has_ended = not self.is_running
            if has_ended or time.monotonic() > deadline:
                self.kill()
                log = self.log_tail()
                failure = PortTaken if ADDRESS_IN_USE in log.lower() else ZooKeeperDidNotStart
                raise failure(f"ZooKeeper {'ended' if has_ended else 'did not become ready'}: {log}")
            time.sleep(POLL_SECONDS)
        self._is_port_fixed = True

    def ask(self, word: str) -> str:
        """Returns the server's answer to a four-letter word, or an empty text if there is no answer."""
        try:
            with socket.create_connection((HOST, self.port), ANSWER_SECONDS_MAX) as connection:
                connection.sendall(word.encode())
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace").strip()
        except OSError:
            return ""

    def restart(self) -> None:
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()


class EmbeddedZooKeeper(ServerProcess):
    """The server of this package (`ottla.zookeeper_server`), which needs no Java."""

    def _prepare(self) -> Sequence[str]:
        return [sys.executable, "-m", "ottla.zookeeper_server", str(self.directory / EMBEDDED_FILE), str(self.port)]


class ZooKeeperProcess(ServerProcess):
    """One server of Apache ZooKeeper. A server of an ensemble is made by `ZooKeeperEnsemble`, which gives it the members' ports."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, jvm_options: Sequence[str] = ()) -> None:
        """`settings` are further lines of `zoo.cfg`. Raises `ZooKeeperMissing`."""
        super().__init__(directory)
        self.data = directory / APACHE_FOLDER
        self.server_id = 0
        self._members: dict[str, str] = {}
        self._settings = dict(settings or {})
        self._command = [java(), *JVM_OPTIONS, *jvm_options, "-cp", class_path(), MAIN_CLASS, str(directory / "zoo.cfg")]

    def join(self, server_id: int, members: Mapping[str, str]) -> None:
        """Makes this server a member of an ensemble; `members` are the `server.N` lines of all members."""
        self.server_id = server_id
        self._members = dict(members)
        self._is_port_fixed = True

    @property
    def is_leader(self) -> bool:
        return "Mode: leader" in self.ask("srvr")

    def _prepare(self) -> Sequence[str]:
        self.data.mkdir(parents=True, exist_ok=True)
        self._write_config()
        return self._command

    def _write_config(self) -> None:
        lines = {
            "tickTime": str(TICK_MS),
            "dataDir": str(self.data),
            "clientPort": str(self.port),
            "clientPortAddress": HOST,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "isro,mntr,ruok,srvr",
            "minSessionTimeout": str(TICK_MS),
            "maxSessionTimeout": "120000",
            "maxClientCnxns": "0",
            **self._members,
            **self._settings,
        }
        if self._members:
            lines = {"initLimit": "20", "syncLimit": "4", **lines}
            (self.data / "myid").write_text(f"{self.server_id}\n")
        (self.directory / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))


def zookeeper_in(directory: Path) -> ServerProcess:
    """Returns a server that is not started yet: Apache ZooKeeper if it is installed, else this project's server. For a directory with data
    it is the server that wrote the data. Raises `ZooKeeperMissing` if Apache ZooKeeper is needed for the data or named by ZOOKEEPER_HOME,
    but is not installed.
    """
    if (directory / EMBEDDED_FILE).exists():
        return EmbeddedZooKeeper(directory)
    try:
        return ZooKeeperProcess(directory)
    except ZooKeeperMissing:
        if (directory / APACHE_FOLDER).exists() or "ZOOKEEPER_HOME" in os.environ:
            raise
    return EmbeddedZooKeeper(directory)


class ZooKeeperEnsemble:
    """An ensemble of several Apache ZooKeeper servers."""

    def __init__(self, directory: Path, size: int = 3, settings: Mapping[str, str] | None = None, jvm_options: Sequence[str] = ()) -> None:
        """Raises `ZooKeeperMissing`."""
        numbers = range(1, size + 1)
        self.servers = [ZooKeeperProcess(directory / f"server-{number}", settings, jvm_options) for number in numbers]
        self._give_ports()

    @property
    def connect(self) -> str:
        """The value of `zookeeper.connect`: all servers."""
        return ",".join(server.connect for server in self.servers)

    def start(self, seconds_max: float = START_SECONDS_MAX) -> ZooKeeperEnsemble:
        """Starts all servers and waits until each accepts writes. Chooses other ports if some are taken. Raises `ZooKeeperDidNotStart`."""
        for attempt in range(START_ATTEMPTS):
            for server in self.servers:
                server.launch()
            try:
                for server in self.servers:
                    server.wait_until_ready(seconds_max)
            except ZooKeeperDidNotStart as error:
                self.kill()
                if attempt + 1 == START_ATTEMPTS or not isinstance(error, PortTaken):
                    raise
                self._give_ports()
            else:
                return self
        raise AssertionError("the last attempt returns or raises")

    def leader(self) -> ZooKeeperProcess | None:
        """Returns the current leader; None during an election."""
        return next((server for server in self.servers if server.is_running and server.is_leader), None)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def __enter__(self) -> ZooKeeperEnsemble:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _give_ports(self) -> None:
        taken: set[int] = set()

        def port() -> int:
            while (found := free_port()) in taken:
                pass
            taken.add(found)
            return found

        members = {f"server.{number}": f"{HOST}:{port()}:{port()}" for number in range(1, len(self.servers) + 1)}
        for number, server in enumerate(self.servers, 1):
            server.port = port()
            server.join(number, members)
