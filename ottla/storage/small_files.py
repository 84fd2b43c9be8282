"""Reads and writes the small text files of log directories and partitions. A file is replaced atomically: after a crash it is the old or
the new one. (Exceptions: the first `partition.metadata` of a new directory and new leader epochs are written in place.)

Kafka's formats: offset checkpoints of a log directory (`0`, count, then `topic partition offset` lines), `leader-epoch-checkpoint` of a
partition (`0`, count, then `epoch startOffset` lines), `meta.properties`, `partition.metadata` and the clean-shutdown marker.

A file is written under a temporary name, synced, renamed over the old one, and the directory is synced. With `is_durable=False` the caller
syncs both later, in a group commit; until then a power failure may tear the file. `StorageError` is raised for a malformed file. The caller
then rebuilds an epoch file from the batches, recovers every log if offset checkpoints are lost, and does not use a directory with a
malformed `meta.properties`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from ottla.base.errors import StorageError
from ottla.base.ports import Disk
from ottla.base.types import TopicPartition
from ottla.base.uuids import uuid_from_text, uuid_to_text

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
META_PROPERTIES_FILE = "meta.properties"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
BOOT_FILE = ".ottla-boot"
"""The id of the machine's boot when the logs of this directory were last written. If it differs, writes that were not synced may be lost.
"""
SYNCED, LEDGER = "synced", "ledger"
CUT_FILE = "recovery-point-cut"

_VERSION = "0"
_CLEAN_SHUTDOWN_BODY = b'{"version":0,"brokerEpoch":-1}'
_Line = TypeVar("_Line")


def read_whole(disk: Disk, path: str) -> bytes | None:
    """Returns all bytes of a small file, None if it does not exist."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def write_atomically(disk: Disk, path: str, data: bytes, *, is_durable: bool = True) -> None:
    """Replaces a file. Readers find either the old bytes or the new ones, also after a crash. Without `is_durable` a power failure may tear
    the file until the caller has synced it."""
    temporary = path + ".tmp"
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        if is_durable:
            file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    if is_durable:
        disk.sync_directory(directory_of(path))


def directory_of(path: str) -> str:
    return path.rpartition("/")[0]


def read_lines(disk: Disk, path: str, parse: Callable[[list[str]], _Line], field_count: int) -> list[_Line] | None:
    """Returns the entries of a checkpoint file (version, count, lines), None if it does not exist. Raises `StorageError` if it is
    malformed.
    """
    data = read_whole(disk, path)
    return None if data is None else parse_lines(data, path, parse, field_count)


def parse_lines(data: bytes, path: str, parse: Callable[[list[str]], _Line], field_count: int) -> list[_Line]:
    """Returns the entries of a checkpoint file with these contents. Raises `StorageError` if it is malformed."""
    try:
        lines = data.decode("utf-8").splitlines()
        if not data.endswith(b"\n"):  # The last number may lack digits.
            raise StorageError(f"{path} is damaged: it ends within a line", path)
        if len(lines) < 2 or lines[0].strip() != _VERSION:
            raise StorageError(f"{path} is damaged: it does not open with version {_VERSION} and a count", path)
        entries = [line.split() for line in lines[2:] if line.strip()]
        if len(entries) != int(lines[1]) or any(len(fields) != field_count for fields in entries):
            raise StorageError(f"{path} is damaged: {len(entries)} entries of {lines[1].strip()} promised ones", path)
        return [parse(fields) for fields in entries]
    except ValueError as error:
        raise StorageError(f"{path} is damaged: {error}", path) from error


def write_lines(disk: Disk, path: str, lines: list[str], *, is_durable: bool = True) -> None:
    write_atomically(disk, path, lines_text(lines).encode(), is_durable=is_durable)


def lines_text(lines: list[str]) -> str:
    """Returns the text of a checkpoint file with these entries."""
    return "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines))


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Returns the entries of an offset checkpoint of a log directory. The result is empty if the file does not exist."""
    entries = read_lines(disk, path, lambda fields: (TopicPartition(fields[0], int(fields[1])), int(fields[2])), 3)
    return dict(entries or ())


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    write_lines(disk, path, [f"{key.topic} {key.partition} {offset}" for key, offset in sorted(offsets.items())])


def read_properties(disk: Disk, path: str) -> dict[str, str] | None:
    """Returns the entries of a simple Java properties file (`key=value`, comments with `#` or `!`), None if it does not exist."""
    data = read_whole(disk, path)
    if data is None:
        return None
    properties = {}
    for line in data.decode("utf-8", errors="replace").splitlines():
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        key, separator, value = text.partition("=")
        if not separator:
            raise StorageError(f"{path} is damaged: no '=' in {text[:80]!r}", path)
        properties[key.strip()] = value.strip()
    return properties


class MetaProperties:
    """The owner of a log directory. Kafka's versions 0 (`broker.id`, the ZooKeeper form) and 1 (`node.id`) are read, 0 is written."""

    __slots__ = ("broker_id", "cluster_id", "directory_id")

    def __init__(self, *, broker_id: int, cluster_id: str, directory_id: str = "") -> None:
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.directory_id = directory_id


def read_meta_properties(disk: Disk, log_directory: str) -> MetaProperties | None:
    path = f"{log_directory}/{META_PROPERTIES_FILE}"
    properties = read_properties(disk, path)
    if properties is None:
        return None
    version = properties.get("version", "")
    if version not in ("0", "1"):
        raise StorageError(f"{path} has version {version!r}, known are 0 and 1", path)
    number = properties.get("broker.id" if version == "0" else "node.id", "")
    if not number.isdecimal() and number != "-1":
        raise StorageError(f"{path} names no broker: broker.id is {number!r}", path)
    cluster_id = properties.get("cluster.id", "")
    if not cluster_id:
        raise StorageError(f"{path} names no cluster: cluster.id is missing", path)
    return MetaProperties(broker_id=int(number), cluster_id=cluster_id, directory_id=properties.get("directory.id", ""))


def write_meta_properties(disk: Disk, log_directory: str, properties: MetaProperties) -> None:
    lines = ["version=0", f"broker.id={properties.broker_id}", f"cluster.id={properties.cluster_id}"]
    if properties.directory_id:
        lines.append(f"directory.id={properties.directory_id}")
    write_atomically(disk, f"{log_directory}/{META_PROPERTIES_FILE}", "".join(f"{line}\n" for line in lines).encode())


def read_topic_id(disk: Disk, partition_directory: str) -> bytes | None:
    """Returns the topic's id from `partition.metadata`, None if the file is missing or was torn by a crash before its first sync."""
    data = read_whole(disk, f"{partition_directory}/{PARTITION_METADATA_FILE}")
    if data is None:
        return None
    fields = dict(line.partition(":")[::2] for line in data.decode("utf-8", errors="replace").splitlines())
    try:
        return uuid_from_text(fields.get("topic_id", "").strip())
    except ValueError:
        return None


def write_topic_id(disk: Disk, partition_directory: str, topic_id: bytes, *, is_durable: bool = True) -> None:
    write_atomically(disk, f"{partition_directory}/{PARTITION_METADATA_FILE}", _partition_metadata(topic_id), is_durable=is_durable)


def write_first_topic_id(disk: Disk, new_directory: str, topic_id: bytes) -> None:
    """Writes `partition.metadata` of a new directory, in place and without a sync. There is no older file that a crash could tear, and the
    next opening replaces a torn one.
    """
    file = disk.open(f"{new_directory}/{PARTITION_METADATA_FILE}", create=True)
    try:
        file.pwrite(_partition_metadata(topic_id), 0)
    finally:
        file.close()


def _partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}\n".encode()


def take_clean_shutdown(disk: Disk, log_directory: str) -> bool:
    """Returns whether the last stop was clean, and removes its marker durably, before any log may change."""
    path = f"{log_directory}/{CLEAN_SHUTDOWN_FILE}"
    if not disk.exists(path):
        return False
    disk.remove(path)
    disk.sync_directory(log_directory)
    return True


def write_clean_shutdown(disk: Disk, log_directory: str) -> None:
    """Writes the marker of a clean shutdown, after every log of the directory was closed and synced."""
    write_atomically(disk, f"{log_directory}/{CLEAN_SHUTDOWN_FILE}", _CLEAN_SHUTDOWN_BODY)


class Boot(NamedTuple):
    """The boot of the machine when the logs of a directory were last written. `is_synced`: records were acknowledged only after a sync, so
    a power failure loses none of them. `has_ledger`: the directory had a ledger (`ledger.py`), so a missing one is lost.
    """

    boot_id: str
    is_synced: bool
    has_ledger: bool = False


def read_boot(disk: Disk, log_directory: str) -> Boot:
    """Reads the note of `write_boot`. The id is empty if there is none."""
    lines = (read_whole(disk, f"{log_directory}/{BOOT_FILE}") or b"").decode(errors="replace").split("\n")
    return Boot(lines[0].strip(), SYNCED in lines[1:], LEDGER in lines[1:])


def write_boot(disk: Disk, log_directory: str, boot: Boot) -> None:
    lines = [boot.boot_id, *[SYNCED] * boot.is_synced, *[LEDGER] * boot.has_ledger]
    write_atomically(disk, f"{log_directory}/{BOOT_FILE}", "".join(f"{line}\n" for line in lines).encode())


def remove_boot(disk: Disk, log_directory: str) -> None:
    disk.remove(f"{log_directory}/{BOOT_FILE}")
    disk.sync_directory(log_directory)


def read_cut(disk: Disk, directory: str) -> int | None:
    """Returns the noted offset of a truncation, the upper bound of the log's recovery point; None if there is no note, 0 if the note is
    damaged."""
    data = read_whole(disk, f"{directory}/{CUT_FILE}")
    if data is None:
        return None
    return int(data) if data.strip().isdigit() else 0


def write_cut(disk: Disk, directory: str, offset: int) -> None:
    """Notes the offset of a truncation durably, unless the file has a lower offset."""
    known = read_cut(disk, directory)
    if known is None or offset < known:
        write_atomically(disk, f"{directory}/{CUT_FILE}", b"%d\n" % offset)


def remove_cut(disk: Disk, directory: str) -> None:
    if disk.exists(f"{directory}/{CUT_FILE}"):
        disk.remove(f"{directory}/{CUT_FILE}")
