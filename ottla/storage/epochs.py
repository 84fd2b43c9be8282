"""The leader epochs of a log with their start offsets (Kafka's `leader-epoch-checkpoint`; KIP-101, KIP-279).

It is a list of (epoch, start offset), both strictly increasing: an epoch reaches from its start to the start of the next epoch.
`end_offset_for` answers a follower that looks for the offset where its log and the leader's diverge. An epoch is added with its first
record, never before: a leader that has written nothing may have to follow another leader that sends records of older epochs. So the list
can be rebuilt from the batches in the log, and the file only has to be durable up to the recovery point; recovery rebuilds the rest from
the batches. A log that was never synced may have no file yet.

Invariant: epochs and offsets strictly increase. A new entry removes the entries that contradict it (the same or a newer epoch, or a start
at or after the new one).

`Log` decides when the file is written (at its group commits). Fencing is in `ottla/replication`.
"""

from __future__ import annotations

from bisect import bisect_right

from ottla.base.errors import StorageError
from ottla.base.ports import Disk
from ottla.base.types import NO_LEADER_EPOCH, NO_OFFSET
from ottla.storage.file_slice import PathSync, Syncable
from ottla.storage.small_files import LEADER_EPOCH_FILE, lines_text, parse_lines, read_whole, write_lines

PAGE_BYTES = 4096
"""Size of a memory page. When a process is killed, each page is written as a whole or not at all."""
SECTOR_BYTES = 512
"""Size of a disk sector. At a power failure, each sector is written as a whole or not at all."""


class LeaderEpochs:
    """The epochs of one log."""

    __slots__ = ("_stored", "epochs", "latest", "starts")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.epochs: list[int] = [epoch for epoch, _ in entries or ()]
        self.starts: list[int] = [start for _, start in entries or ()]
        self.latest = self.epochs[-1] if self.epochs else NO_LEADER_EPOCH
        self._stored: tuple[list[int], list[int]] | None = (self.epochs, self.starts)  # both lists are replaced, never changed

    @property
    def is_dirty(self) -> bool:
        """Whether the file differs from this list."""
        return self._stored != (self.epochs, self.starts)

    def distrust_file(self) -> None:
        """Makes the list dirty, because the file is missing or unusable. The next group commit writes it again."""
        self._stored = None

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self.epochs, self.starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Notes that `epoch` begins at `start_offset`. Does nothing if `epoch` is already the latest one, or is -1 (data without an
        epoch).
        """
        if epoch < 0 or epoch == self.latest:
            return
        keep = bisect_right(self.epochs, epoch - 1)
        while keep > 0 and self.starts[keep - 1] >= start_offset:
            keep -= 1
        self._keep(0, keep)
        self.epochs.append(epoch)
        self.starts.append(start_offset)
        self.latest = epoch

    def end_offset_for(self, epoch: int, log_end_offset: int, leader_epoch: int = NO_LEADER_EPOCH) -> tuple[int, int]:
        """Returns the answer of OffsetForLeaderEpoch: the largest known epoch up to `epoch`, and its end offset. An epoch older than all
        known ones ends where the first known one starts. Returns (-1, -1) for an epoch newer than all known ones, and if none is known.
        A leader passes its `leader_epoch`, which is known before its first record.
        """
        if epoch < 0 or epoch > max(self.latest, leader_epoch):  # an epoch newer than any in this log
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch in (self.latest, leader_epoch):
            return epoch, log_end_offset
        after = bisect_right(self.epochs, epoch)
        if after == len(self.epochs):  # an epoch between the newest record and the leader's first one
            return (self.latest if after else epoch), log_end_offset
        if after == 0:  # older than every epoch of this log: no record of it is left
            return epoch, self.starts[0]
        return self.epochs[after - 1], self.starts[after]

    def epoch_at(self, offset: int) -> int:
        """Returns the epoch that wrote `offset`, or -1."""
        index = bisect_right(self.starts, offset)
        return self.epochs[index - 1] if index else NO_LEADER_EPOCH

    def start_above(self, epoch: int) -> int | None:
        """Returns the start of the first epoch above `epoch`, or None if there is none."""
        at = bisect_right(self.epochs, epoch)
        return self.starts[at] if at < len(self.starts) else None

    def contradicts(self, epoch: int, offset: int) -> bool:
        """Whether a batch at `offset` cannot be of this epoch. After the newest known start, any epoch that is not older is possible,
        because the list may lack later ones.
        """
        index = bisect_right(self.starts, offset)
        if epoch == NO_LEADER_EPOCH or not index:
            return False
        return epoch != self.epochs[index - 1] if index < len(self.starts) else epoch < self.epochs[index - 1]

    def truncate_end(self, end_offset: int) -> None:
        """Removes epochs that start at or after `end_offset`."""
        keep = len(self.starts)
        while keep > 0 and self.starts[keep - 1] >= end_offset:
            keep -= 1
        if keep < len(self.starts):
            self._keep(0, keep)

    def truncate_head(self, start_offset: int) -> None:
        """Removes epochs that end at or before `start_offset`. The epoch that contains `start_offset` then starts there."""
        first = bisect_right(self.starts, start_offset) - 1
        if first < 0 or (first == 0 and self.starts[0] == start_offset):
            return
        self._keep(first, len(self.starts))
        self.starts[0] = start_offset

    def clear(self) -> None:
        self._keep(0, 0)

    def write(self, disk: Disk, directory: str, *, is_durable: bool) -> None:
        """Replaces the file. If it is not durable, the caller syncs it in the same group commit. A power failure before that may leave a
        torn file, which recovery rebuilds. The rebuilt file lacks the epochs whose batches compaction has removed, so a follower may
        truncate further back than it must.
        """
        write_lines(disk, f"{directory}/{LEADER_EPOCH_FILE}", _lines(self.epochs, self.starts), is_durable=is_durable)
        self._stored = (self.epochs, self.starts)

    def append_to_file(self, disk: Disk, directory: str) -> Syncable | None:
        """Adds the epochs that the file lacks, in place, and returns the file, which must be synced. Creates the file if there is none. If
        the file must be replaced, changes nothing and returns None.

        Replacing a file is slower: ext4 first writes the blocks of the new file, up to 3 ms for each log of a clean stop. A kill does not
        tear the write in place. A file that a power failure tears is invalid, and recovery rebuilds it from the batches.
        """
        if self._stored is None:
            return None
        old_lines, lines = _lines(*self._stored), _lines(self.epochs, self.starts)
        old, new = lines_text(old_lines).encode(), lines_text(lines).encode()
        is_shifted = len(str(len(old_lines))) != len(str(len(lines)))
        if lines[: len(old_lines)] != old_lines or len(new) > (SECTOR_BYTES if is_shifted else PAGE_BYTES):
            return None
        path = f"{directory}/{LEADER_EPOCH_FILE}"
        found = read_whole(disk, path)
        if found != old and (found or old_lines):
            return None
        file = disk.open(path, create=True)
        try:
            file.pwrite(new, 0)
        finally:
            file.close()
        self._stored = (self.epochs, self.starts)
        return PathSync(disk, path)

    def _keep(self, first: int, end: int) -> None:
        self.epochs = self.epochs[first:end]
        self.starts = self.starts[first:end]
        self.latest = self.epochs[-1] if self.epochs else NO_LEADER_EPOCH


def _lines(epochs: list[int], starts: list[int]) -> list[str]:
    return [f"{epoch} {start}" for epoch, start in zip(epochs, starts, strict=True)]


def read_epochs(disk: Disk, directory: str) -> LeaderEpochs | None:
    """Returns the epochs in the file of a partition directory. Returns None if there is no file, or an empty one: the broker was killed
    while it made the file. Raises `StorageError` for a damaged file (the caller rebuilds it from the batches).
    """
    path = f"{directory}/{LEADER_EPOCH_FILE}"
    data = read_whole(disk, path)
    if not data:
        return None
    entries = parse_lines(data, path, lambda fields: (int(fields[0]), int(fields[1])), 2)
    for (epoch, start), (next_epoch, next_start) in zip(entries, entries[1:], strict=False):
        if epoch >= next_epoch or start >= next_start:
            raise StorageError(f"{path} is damaged: epoch {next_epoch} at {next_start} follows epoch {epoch} at {start}", path)
    return LeaderEpochs(entries)
