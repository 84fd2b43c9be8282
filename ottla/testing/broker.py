"""A broker in its own process, for tests.

    with Broker() as broker:
        broker.get_bootstrap_server()

`Broker` has the interface of testcontainers' `KafkaContainer`, so that a test only has to change its import. Variables of `with_env` become
settings, and methods about the container's host return the address for clients on this machine. `snapshot()` copies the data directory, and
`Broker.from_snapshot(path)` starts a broker on a copy of a snapshot.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from ottla.testing.clock import Clock
from ottla.testing.handle import BrokerHandle, Pause
from ottla.testing.logins import logins_of, make_certificates
from ottla.testing.marks import Mark, Marks
from ottla.testing.process import START_SECONDS_MAX, BrokerProcess
from ottla.testing.reaper import remove_directory, temporary_directory

DEFAULTS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.assignment.interval.ms": "0",
    "log.retention.check.interval.ms": "86400000",
    "ottla.shutdown.timeout.ms": "1000",
    "ottla.log.format": "text",
}
"""Settings for tests: one partition of each internal topic is created faster than fifty, and share groups reassign partitions at each
change.

By Kafka's rules, records with timestamps of past years expire at the first check of retention. The check is a day after the start, so that
such records are kept for a whole test run.
"""

CONTAINER_PORT = 9093
PLACES = (
    "advertised.listeners", "controller.listener.names", "listener.security.protocol.map", "listeners", "log.dir", "log.dirs",
    "zookeeper.connect",
)  # fmt: skip
"""Settings of addresses, data directories and the controller, which `with_env` ignores: a container's values do not apply here."""


class Broker(BrokerHandle):
    """A broker in its own process, from `start` or the beginning of a `with` block to `stop` or its end.

    `settings` are broker settings (`server.properties`); `topics` (`"orders:3"`) are created at the start. `image` and `port` are accepted,
    as for a container, and ignored. Without `data_dir` the data directory is temporary, and removed at the end.
    """

    def __init__(
        self,
        image: str = "",
        *,
        port: int | None = None,
        settings: Mapping[str, object] | None = None,
        topics: Sequence[str] = (),
        data_dir: str | Path | None = None,
        start_timeout: float = START_SECONDS_MAX,
        users: Mapping[str, str] | None = None,
        tls: bool = False,
    ) -> None:
        """`users` has passwords by name; clients must then log in (`logins.py`). `tls` enables TLS with a certificate for this machine.

        Raises `ValueError` for a setting that neither Ottla nor Kafka knows, with the most similar name.
        """
        checked = checked_settings(settings)
        authority, certificate = _certificates() if tls else ("", "")
        logins = logins_of(users, authority=authority)
        if logins is not None:
            checked = logins.settings(checked)
        if certificate:
            checked["ssl.keystore.location"] = certificate
        super().__init__(logins=logins)
        self.image = image  # accepted as in testcontainers; nothing is downloaded
        self.port = port if port is not None else CONTAINER_PORT
        self._settings = {**DEFAULTS, **checked}
        self._topics = list(topics)
        self._given_data_dir = None if data_dir is None else Path(data_dir).resolve()
        self._start_timeout = start_timeout
        self._source: Path | None = None
        self._home: Path | None = None
        self._process: BrokerProcess | None = None
        self._marks = Marks()
        self.clock = Clock(lambda: [self._process.time] if self._process is not None and self._process.is_running else [])

    @classmethod
    def from_snapshot(
        cls, path: str | Path, *, settings: Mapping[str, object] | None = None, users: Mapping[str, str] | None = None
    ) -> Broker:
        """Returns a broker that is not started yet, on a copy of the snapshot; the snapshot is not changed."""
        broker = cls(settings=settings, users=users)
        broker._source = Path(path).resolve()
        return broker

    # Starting and stopping

    def start(self, timeout: float | None = None) -> Broker:
        """Starts the broker, which is ready to serve when this returns. Raises `BrokerDidNotStart`."""
        assert self._process is None, "the broker is already running"
        if timeout is not None:
            self._start_timeout = timeout
        home = self._home = temporary_directory("ottla-")
        data_dir = self._given_data_dir or home / "data"
        if self._source is not None:
            from ottla.testing.snapshot import copy_data

            copy_data(self._source, data_dir)
        process = BrokerProcess(data_dir, home / "broker.log", self._settings, self._topics, protocol=self.protocol)
        # A test run that ends without `stop` stops the broker too.
        self._finalizer = weakref.finalize(self, _clean_up, process, self._marks, home)
        try:
            host, port = process.start(self._start_timeout)
            self.direct_server = f"{host}:{port}"
            self._store_logins()
        except BaseException:
            self.close()
            self.direct_server = ""
            self._finalizer()
            raise
        self._process = process
        return self

    def stop(self) -> None:
        """Stops the broker; a temporary data directory is removed."""
        self.close()
        self._marks.close()
        process, self._process = self._process, None
        if process is not None:
            process.stop()
            self._finalizer()
            self.direct_server = ""

    def __enter__(self) -> Broker:
        return self if self._process is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # The interface of a container

    def with_env(self, key: str, value: str) -> Broker:
        """Sets a setting by its environment variable (`KAFKA_NUM_PARTITIONS` for `num.partitions`). Settings of listeners, addresses and
        data directories are ignored. Warns of any other variable that is not for a setting of Ottla or Kafka.
        """
        self._set_variable(key, value)
        return self

    def with_envs(self, **variables: str) -> Broker:
        for key, value in variables.items():
            self._set_variable(key, value)
        return self

    def _set_variable(self, variable: str, value: str) -> None:
        from ottla.base.settings.sources import ENVIRONMENT_PREFIX, parse_environment

        settings, skipped = parse_environment({variable: str(value)})
        reason = ""
        if skipped:
            reason = "it is for a JVM or for an image's scripts"
        elif not settings:
            reason = f"settings begin with {ENVIRONMENT_PREFIX}"
        for name, text in settings.items():
            reason = unknown_setting(name)
            if name not in PLACES:
                self._settings[name] = text
        if reason:
            warnings.warn(f"{variable!r} has no effect: {reason}", stacklevel=3)

    def with_cluster_id(self, cluster_id: str) -> Broker:
        self._settings["ottla.cluster.id"] = cluster_id
        return self

    def with_kraft(self) -> Broker:
        """Does nothing: the broker needs neither ZooKeeper nor a quorum."""
        return self

    def _as_it_is(self, *_: object, **__: object) -> Broker:
        """Does nothing, because there is no container that needs a name, a network or open ports."""
        return self

    with_name = with_exposed_ports = with_network = with_network_aliases = with_kwargs = maybe_emulate_amd64 = _as_it_is

    def get_container_host_ip(self) -> str:
        return self.address[0]

    def get_exposed_port(self, port: int | str) -> int:
        """Returns the port for clients; `port` is ignored."""
        return self.address[1]

    def get_logs(self) -> tuple[bytes, bytes]:
        """Returns (stdout, stderr); the broker's log is stderr."""
        return b"", self.log.encode()

    @property
    def process(self) -> BrokerProcess:
        assert self._process is not None, "the broker is not running; start() it, or use it in a with statement"
        return self._process

    @property
    def data_dir(self) -> Path:
        return self.process.data_dir

    @property
    def log(self) -> str:
        """The broker's log."""
        return self.process.log_file.read_text(errors="replace")

    @property
    def log_files(self) -> dict[str, Path]:
        return {} if self._process is None else {"broker": self._process.log_file}

    # Faults, by signals: the whole process is suspended

    def pause(self) -> Pause:
        self.process.suspend()
        return Pause(self)

    def resume(self) -> None:
        if self._process is not None:
            self._process.resume()

    def end_faults(self) -> None:
        super().end_faults()
        self.resume()
        if self.clock.is_frozen:
            self.clock.run()

    # Snapshots

    def snapshot(self, path: str | Path | None = None) -> Path:
        """Copies the broker's current data to `path` (which must not exist), or to a new directory that is removed when this process ends.
        """
        from ottla.testing.snapshot import new_snapshot, take_snapshot

        return take_snapshot(self.process.pid, self.data_dir, new_snapshot(path), is_suspended=self.process.is_suspended)

    def mark(self) -> Mark:
        """Keeps the broker's data and the state of its clock, for `rewind`."""
        return self._marks.mark(self.process)

    def rewind(self, mark: Mark | None = None) -> None:
        """Returns the broker to a mark: its data and its clock's offset are as they were at the mark; its address does not change. With
        None it uses the mark of the last `mark` or `rewind`. Connections are closed, and faults end. Raises `RuntimeError` without a mark.
        """
        self.end_faults()
        process = self._process = self._marks.rewind(self.process, mark)
        assert self._home is not None
        self._finalizer.detach()
        self._finalizer = weakref.finalize(self, _clean_up, process, self._marks, self._home)


@lru_cache(maxsize=1)
def _certificates() -> tuple[str, str]:
    """Returns one authority and one certificate for all brokers of this process."""
    return make_certificates(temporary_directory("ottla-certificates-") / "certificates")


def _clean_up(process: BrokerProcess, marks: Marks, home: Path) -> None:
    marks.close()
    process.kill()
    remove_directory(home)


def checked_settings(settings: Mapping[str, object] | None) -> dict[str, str]:
    """Returns the settings as texts. Raises `ValueError` for an unknown name (`unknown_setting`)."""
    for name in settings or {}:
        if reason := unknown_setting(name):
            raise ValueError(reason)
    return {name: text_of(value) for name, value in (settings or {}).items()}


def unknown_setting(name: str) -> str:
    """Returns an error text for a setting that neither Ottla nor Kafka knows, with the most similar name, or an empty text for a known
    setting."""
    from ottla.base.config import BROKER_SETTINGS
    from ottla.base.settings.known import is_known_to_kafka
    from ottla.base.settings.security import is_family_name
    from ottla.base.settings.sources import nearest

    if name in BROKER_SETTINGS or is_family_name(name) or is_known_to_kafka(name):
        return ""
    likely = nearest(name, list(BROKER_SETTINGS))
    return f"unknown setting {name!r}" + (f"; did you mean {likely!r}?" if likely else "")


def text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
