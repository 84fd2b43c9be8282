"""Opens a log from its directory, after a clean stop and after a crash.

After a clean stop recovery reads names, sizes, small files, the last index entries and the batches behind them. A log that ends before its
recovery point has lost data and is refused with `DamagedLogError`. An empty sealed segment has lost its records too, but that is only
logged. After a crash every batch from the recovery point on is checked (CRC, offsets, leader epoch). The log is cut at the first bad batch,
the beginning of the torn tail; later segments are removed. Batches below the recovery point were synced. A bad batch there, or below the
end that the ledger proves, means that the disk lost data. Cutting would lose acknowledged records silently, so `DamagedLogError` is raised
with file and offset. The partition is then offline until it is repaired, unless its damage may be cut off (`is_replaceable`). If a log ends
below the recovery point, after a whole batch, it was truncated just before the crash. Such a log is accepted unless the ledger proves a
later end. After a failed sync the kernel may mark pages as clean that never reached the disk, and a later sync of them reports success
(I44). So a log in a directory that failed is written again from its recovery point on, with the checked bytes, before it is synced.

A new directory gets `partition.metadata` and an empty segment. The first batch creates the indexes, the first sync the file of leader
epochs. A log without batches needs no indexes, and a log without a sync no file of epochs.

Recovery rebuilds from the batches: missing or damaged indexes, leader epochs and aborted transactions from the recovery point on (all
epochs if their file is missing or torn), and the producers' state after the newest valid snapshot. As in Kafka, it removes leftover
`.deleted`, `.cleaned` and `.tmp` files, and lets `.swap` files replace the old segments. `notes` gets one line for each repair. The caller
reads the checkpoints of the log directory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.base.errors import DamagedLogError, StorageError
from ottla.base.log_config import LogConfig
from ottla.base.ports import Disk
from ottla.base.types import NO_OFFSET, TopicPartition
from ottla.storage import known_damage
from ottla.storage.aborted import AbortedTransaction
from ottla.storage.damaged_tail import remove_from
from ottla.storage.epochs import LeaderEpochs, read_epochs
from ottla.storage.file_renames import compacted_ends, offset_of
from ottla.storage.index import RELATIVE_OFFSET_MAX
from ottla.storage.known_damage import KNOWN_DAMAGE_FILE
from ottla.storage.ledger import NO_PROOF, UNKNOWN, Proof
from ottla.storage.leftovers import finish_leftovers
from ottla.storage.open_files import OpenFiles
from ottla.storage.producers import CompletedTransaction, ProducerStates
from ottla.storage.scan import NEVER, DamageError, scan_batches
from ottla.storage.segment import ABORTED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment
from ottla.storage.small_files import PARTITION_METADATA_FILE, read_cut, read_topic_id, write_first_topic_id, write_topic_id
from ottla.storage.snapshots import SNAPSHOT_SUFFIX, ProducerSnapshots, aborted_between, aborted_entry, apply_stored_batch, replay
from ottla.wire.batch_header import BatchHeader


@dataclass(slots=True, kw_only=True)
class Opening:
    """The state of an opening: the caller's parameters, and the results of recovery."""

    disk: Disk
    directory: str
    topic_partition: TopicPartition
    config: LogConfig
    now_ms: int
    was_clean: bool
    recovery_point: int
    log_start_offset: int
    clean_offset: int
    is_sync_doubtful: bool
    topic_id: bytes | None
    open_files: OpenFiles
    proof: Proof = NO_PROOF
    is_replaceable: bool = False
    notes: list[str] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    log_end_offset: int = 0
    compacted_end: int = 0  # up to here compaction may have left gaps between segments
    known_damage: frozenset[int] = frozenset()
    is_new: bool = False
    has_epoch_file: bool = False
    producers: ProducerStates = field(init=False)
    snapshots: ProducerSnapshots = field(init=False)

    def note(self, text: str) -> None:
        self.notes.append(f"{self.topic_partition}: {text}")


def open_log(opening: Opening) -> None:
    """Fills in `opening` from its directory, which must exist. Creates a first segment if there is none. Raises `StorageError`.

    A new directory gets only two files, because further ones would be most of the cost of a new topic."""
    if not opening.is_new:
        _claim_topic_id(opening)
    elif opening.topic_id is not None:
        write_first_topic_id(opening.disk, opening.directory, opening.topic_id)
    try:
        _open(opening)
    except DamagedLogError as damage:
        if not opening.is_replaceable or damage.first_offset < 0:
            raise
        _give_up_from(opening, damage)
        _open(opening)


def _open(opening: Opening) -> None:
    names = [] if opening.is_new else finish_leftovers(opening.disk, opening.directory, opening.note)
    opening.producers = ProducerStates(opening.topic_partition)
    opening.compacted_end = _compacted_end(opening, names)
    offsets = [offset for name in names if (offset := offset_of(name, SNAPSHOT_SUFFIX)) is not None]
    opening.snapshots = ProducerSnapshots(opening.disk, opening.directory, sorted(offsets))
    if KNOWN_DAMAGE_FILE in names:
        opening.known_damage = known_damage.read(opening.disk, opening.directory, opening.notes)
    opening.segments = []
    if opening.proof.is_exact:
        opening.log_start_offset = max(opening.log_start_offset, opening.proof.start)
    _find_segments(opening, names)
    if not opening.is_new:
        _read_epochs(opening)
        _read_cut(opening)
    if not opening.segments:
        _start_new(opening, opening.log_start_offset)
    elif opening.was_clean:
        _open_clean(opening)
    else:
        _recover(opening)
    _check_proof(opening)
    _apply_log_start(opening)


def _read_cut(opening: Opening) -> None:
    """Lowers the recovery point to a noted truncation. After a restart of the machine the ledger may be older than it, and is ignored."""
    cut = None if opening.was_clean else read_cut(opening.disk, opening.directory)
    if cut is not None:
        opening.recovery_point = min(opening.recovery_point, cut)
        if not opening.proof.is_exact:
            opening.proof = NO_PROOF


def _check_proof(opening: Opening) -> None:
    """Raises `DamagedLogError` if the log begins later or ends earlier than the ledger proves."""
    proof, first, end = opening.proof, opening.segments[0].base_offset, opening.log_end_offset
    if proof.is_exact and first > opening.log_start_offset:
        message = f"{opening.directory} begins at offset {first}, and it began at {proof.start}: segments are missing, which is damage"
        raise DamagedLogError(message, opening.directory, first_offset=proof.start, last_offset=first - 1)
    if end < proof.end:
        message = f"{opening.directory} ends at offset {end}, and it ended at {proof.end}: this is damage"
        raise DamagedLogError(message, opening.directory, first_offset=end, last_offset=proof.end - 1)


def _give_up_from(opening: Opening, damage: DamagedLogError) -> None:
    """Removes everything from the first damaged offset on, so that the caller can open the rest."""
    first = damage.first_offset
    kept = remove_from(opening.disk, opening.directory, first)
    opening.note(f"cut everything from offset {first} on, up to {_last_known(opening, damage)}: {damage}")
    opening.proof, opening.was_clean = NO_PROOF, False
    opening.recovery_point = min(opening.recovery_point, kept)
    opening.epochs, opening.has_epoch_file = LeaderEpochs(), False


def _last_known(opening: Opening, damage: DamagedLogError) -> str:
    ends = (damage.last_offset + 1, opening.proof.end, opening.recovery_point)
    return f"offset {max(ends) - 1}" if max(ends) > damage.first_offset else "its end"


def _compacted_end(opening: Opening, names: list[str]) -> int:
    """Returns the end of the offsets that may have gaps, because the log was compacted: the largest offset in the names of `.compacted`
    files. Kafka writes no such file. Without one, returns `NEVER` if the clean offset or the cleanup policy shows that the log may have
    been compacted, else 0."""
    ends = compacted_ends(names)
    if ends:
        return max(ends[-1], opening.clean_offset)
    return NEVER if opening.clean_offset or opening.config.is_compacted else 0


def _claim_topic_id(opening: Opening) -> None:
    """Raises `StorageError` if the directory belongs to another topic id. Writes the id into a directory that has none (I41)."""
    disk, directory = opening.disk, opening.directory
    found = read_topic_id(disk, directory)
    if found is None and opening.topic_id is not None:
        if disk.exists(f"{directory}/{PARTITION_METADATA_FILE}"):
            opening.note(f"{PARTITION_METADATA_FILE} names no topic; wrote it again")
        write_topic_id(disk, directory, opening.topic_id, is_durable=False)
    elif found is not None and opening.topic_id not in (None, found):
        raise StorageError(f"{directory} holds another topic of that name: its {PARTITION_METADATA_FILE} says so", directory)
    opening.topic_id = found or opening.topic_id


# Files


def _find_segments(opening: Opening, names: list[str]) -> None:
    disk, directory = opening.disk, opening.directory
    there = frozenset(names)
    bases = sorted(base for name in names if (base := offset_of(name, LOG_SUFFIX)) is not None)
    for name in names:
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX):
            base = offset_of(name, suffix)
            if base is not None and f"{base:020d}{LOG_SUFFIX}" not in there:
                disk.remove(f"{directory}/{name}")
                opening.note(f"removed {name}, which belongs to no segment")
    for base in bases:
        segment = new_segment(opening, base)
        segment.take_files(NO_OFFSET)
        segment.is_name_durable = opening.was_clean
        opening.segments.append(segment)
    while len(opening.segments) > 1 and opening.segments[1].base_offset <= opening.log_start_offset:
        opening.segments.pop(0).remove()  # all of it is below the log's start
    for segment, following in zip(opening.segments, opening.segments[1:], strict=False):
        segment.end_offset = following.base_offset
        segment.forget_tail(following.base_offset)


def new_segment(opening: Opening, base: int) -> Segment:
    return Segment(
        opening.disk, opening.directory, base, config=opening.config, now_ms=opening.now_ms, open_files=opening.open_files,
        notes=opening.notes,
    )  # fmt: skip


def _start_new(opening: Opening, base: int) -> None:
    segment = new_segment(opening, base)
    segment.open_file(create=True)
    segment.release_file()  # an idle partition keeps nothing open
    opening.segments = [segment]
    opening.log_end_offset = base
    opening.recovery_point = base
    opening.epochs.clear()
    opening.snapshots.remove_above(-1)


# Epochs


def _read_epochs(opening: Opening) -> None:
    try:
        found = read_epochs(opening.disk, opening.directory)
        if found is not None:
            opening.epochs, opening.has_epoch_file = found, True
            return
        problem = "is missing"
    except StorageError as error:
        problem, opening.has_epoch_file = f"cannot be used ({error})", True
    if not any(segment.size for segment in opening.segments):
        return
    if not opening.has_epoch_file and not opening.was_clean and opening.recovery_point <= opening.segments[0].base_offset:
        return  # nothing was synced yet, and the check of all batches finds every epoch
    opening.epochs.distrust_file()
    opening.note(f"leader-epoch-checkpoint {problem}; making it again from the batches")
    try:
        for segment in opening.segments:
            for _, header, _ in segment.scan(0):
                opening.epochs.assign(header.partition_leader_epoch, header.base_offset)
    except DamageError as damage:
        if damage.offset < opening.recovery_point:  # an epoch may begin in the damaged range, so the epochs there are unknown
            opening.epochs.clear()
        return  # a torn tail: the epochs before it are right


# After a clean stop


def _open_clean(opening: Opening) -> None:
    active = opening.segments[-1]
    for segment in opening.segments:
        _mend_missing_index(opening, segment)
        if not segment.size and segment is not active and segment.end_offset > opening.compacted_end:
            opening.note(f"{segment.path(LOG_SUFFIX)} is empty: offsets {segment.base_offset} to {segment.end_offset - 1} are missing")
    problem = active.read_indexes() if active.size else ""
    if problem:
        opening.note(f"segment {active.base_offset}: {problem}; made its indexes again")
        active.rebuild_indexes()
        active.add_final_time_entry()
        active.write_indexes()
    end = active.base_offset
    for position, header, batch in active.scan(active.index.last_position):
        end = header.next_offset
        active.index_batch(position, header, batch)
    if end < opening.recovery_point:
        message = f"{opening.directory} ends at offset {end}, and it ended at {opening.recovery_point} when it was closed"
        raise DamagedLogError(message, opening.directory, first_offset=end, last_offset=opening.recovery_point - 1)
    active.is_loaded = active.is_max_known = True
    active.forget_tail(end)
    opening.log_end_offset = opening.recovery_point = end
    opening.epochs.truncate_end(end)
    opening.snapshots.remove_above(end)
    start = opening.snapshots.restore(opening.producers, end, opening.notes)
    replay(opening.producers, opening.segments, opening.segments[0].base_offset if start is None else start, end)
    active.release_file()


def _mend_missing_index(opening: Opening, segment: Segment) -> None:
    """Rebuilds the indexes of a segment that lacks an index file. A damaged index is found and rebuilt on its first use."""
    disk = opening.disk
    if segment.size and not (disk.exists(segment.path(INDEX_SUFFIX)) and disk.exists(segment.path(TIME_INDEX_SUFFIX))):
        opening.note(f"segment {segment.base_offset} lacks an index; made it again")
        segment.rebuild_indexes()
        segment.write_indexes()


# After a crash


def _recover(opening: Opening) -> None:
    """Checks everything from the recovery point on and cuts the tail at the first bad batch."""
    segments = opening.segments
    point = min(max(opening.recovery_point, segments[0].base_offset), segments[-1].base_offset + RELATIVE_OFFSET_MAX)
    # A segment that ends at the recovery point was perhaps sealed after its last sync, so its indexes may be torn.
    first = max(index for index, segment in enumerate(segments) if not index or segment.base_offset < point)
    known_epochs = LeaderEpochs(opening.epochs.entries())
    opening.epochs.truncate_end(point)
    opening.snapshots.remove_above(point)
    for segment in segments[:first]:
        _mend_missing_index(opening, segment)
    restored = opening.snapshots.restore(opening.producers, point, opening.notes)
    replay_from = segments[0].base_offset if restored is None else restored
    checked = _Check(opening, point, known_epochs if opening.proof.is_exact else opening.epochs)
    index, end = first, point
    try:
        replay(opening.producers, segments[:first], replay_from, segments[first].base_offset)
        while index < len(segments):
            end = checked.recover_segment(segments[index], max(replay_from, segments[index].base_offset))
            index += 1
    except DamageError as damage:
        end = _cut(opening, index, damage, point)
        if end < checked.end:  # the cut removes a batch that was applied to the producers already
            _recover(opening)
            return
    if end < point:
        opening.note(f"the log ends at {end}, before the recovery point {point}: taken as truncated, checking its last segment")
        opening.recovery_point = segments[-1].base_offset
        _recover(opening)
        return
    is_proved_synced = not opening.is_sync_doubtful and point < opening.proof.synced <= end
    opening.log_end_offset, opening.recovery_point = end, opening.proof.synced if is_proved_synced else point
    active = segments[-1]
    active.end_offset = NO_OFFSET
    active.forget_tail(end)
    checked.write_aborted()
    if opening.is_sync_doubtful:
        for segment in segments[first:]:
            segment.write_again(segment.position_of(point) if point > segment.base_offset else 0)
    active.release_file()


class _Check:
    """The pass over the batches from the recovery point on."""

    def __init__(self, opening: Opening, point: int, known_epochs: LeaderEpochs) -> None:
        self.opening = opening
        self.point = point
        self.end = 0
        self._known_epochs = known_epochs
        self.completed: list[CompletedTransaction] = []

    def recover_segment(self, segment: Segment, producers_from: int) -> int:
        """Checks and indexes one segment. Returns its end offset. Raises `DamageError` with the position at which it must be cut."""
        opening, point = self.opening, self.point
        try:
            problem = segment.read_indexes()
        except DamagedLogError as damage:  # the batches are checked below
            problem = str(damage)
        if problem:
            segment.forget_indexes()
            if segment.size and point > segment.base_offset:
                opening.note(f"segment {segment.base_offset}: {problem}; made its indexes again")
        start, end = self._start_of_scan(segment, min(max(point, segment.base_offset), producers_from))
        file = segment.file()
        offset_max = segment.end_offset - 1 if segment.is_sealed else segment.roll_offset
        for position, header, batch in scan_batches(file, start, segment.size, next_offset=end, offset_max=offset_max, crc_from=point):
            self._judge(file.path, position, header, end)
            end = self.end = header.base_offset + header.last_offset_delta + 1
            segment.index_batch(position, header, batch)
            if header.base_offset >= point:
                opening.epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.base_offset >= producers_from:
                ended = apply_stored_batch(opening.producers, file.path, position, header, batch)
                if ended is not None and ended.last_offset >= point:
                    self.completed.append(ended)
        if segment.is_sealed and end < segment.end_offset and segment.end_offset > opening.compacted_end:
            message = f"{file.path} ends at {end}, the next segment begins at {segment.end_offset}"
            raise DamageError(message, file.path, segment.size, end)
        if segment.is_sealed:
            segment.add_final_time_entry()
        segment.write_indexes()
        return end

    def _judge(self, path: str, position: int, header: BatchHeader, end: int) -> None:
        """Compares base offset and leader epoch, which the CRC does not cover, with the ledger and the known epochs. Raises `DamageError`.
        """
        proof, epoch = self.opening.proof, header.partition_leader_epoch
        if proof.is_exact and end < proof.end < header.next_offset:
            message = f"{path}: the batch at {position} ends at {header.next_offset}, and one ended at {proof.end}"
        elif proof.is_exact and header.base_offset < proof.end and epoch > proof.epoch != UNKNOWN:
            message = f"{path}: the batch at {position} is of leader epoch {epoch}, and the newest one was {proof.epoch}"
        elif header.base_offset >= self.point and self._known_epochs.contradicts(epoch, header.base_offset):
            known = self._known_epochs.epoch_at(header.base_offset)
            message = f"{path}: the batch at {position} is of leader epoch {epoch}, not of {known}"
        else:
            return
        raise DamageError(message, path, position, end)

    def _start_of_scan(self, segment: Segment, offset: int) -> tuple[int, int]:
        """Returns position and base offset of an indexed batch at or before `offset`, or of the segment's beginning."""
        start = segment.drop_index_tail(offset)
        return (start, segment.header_at(start).base_offset) if start > 0 else (0, segment.base_offset)

    def write_aborted(self) -> None:
        """Writes the aborted transactions of the checked segments from the markers that were found."""
        for segment in self.opening.segments:
            if segment.is_sealed and segment.end_offset <= self.point:
                continue
            base, end = segment.base_offset, segment.end_offset if segment.is_sealed else self.opening.log_end_offset
            try:
                known = [entry for entry in segment.aborted() if entry.last_offset < self.point]
            except StorageError as error:
                self.opening.note(f"segment {base}: {error}; made it again")
                known = self._aborted_again(base, min(self.point, end))
            found = [entry for ended in self.completed if (entry := aborted_entry(ended)) and base <= entry.last_offset < end]
            if segment.has_aborted or found:
                segment.replace_aborted(known + found)

    def _aborted_again(self, start: int, end: int) -> list[AbortedTransaction]:
        opening = self.opening
        return aborted_between(opening.topic_partition, opening.snapshots, opening.segments, start, end, opening.notes)


def _cut(opening: Opening, index: int, damage: DamageError, point: int) -> int:
    """Cuts the torn tail and returns the new end. Raises `DamagedLogError` for damage below the recovery point or the ledger's end."""
    if damage.offset < point and opening.log_start_offset < point:
        message = f"{damage}; offset {damage.offset} lies below the recovery point {point}: this is damage, not a torn tail, and is not cut"
        raise DamagedLogError(message, opening.directory, first_offset=damage.offset)
    if damage.offset < opening.proof.end:
        message = f"{damage}; the log reached offset {opening.proof.end}: this is damage, not a torn tail, and is not cut"
        raise DamagedLogError(message, opening.directory, first_offset=damage.offset)
    segments = opening.segments
    for segment in reversed(segments[index + 1 :]):
        segment.remove()
    lost = segments[index].size - damage.position + sum(segment.size for segment in segments[index + 1 :])
    del segments[index + 1 :]
    segments[index].cut_at(damage.position, damage.offset)
    opening.disk.sync_directory(opening.directory)
    opening.note(f"cut {lost} bytes from offset {damage.offset} on: {damage}")
    opening.epochs.truncate_end(damage.offset)
    return damage.offset


# The start of the log


def _apply_log_start(opening: Opening) -> None:
    """Sets the log start to the noted offset, but not before the first segment. A log that ends below its start is emptied and begins at
    it."""
    start = max(opening.log_start_offset, opening.segments[0].base_offset)
    if start > opening.log_end_offset:
        opening.note(f"the log ends at {opening.log_end_offset}, before its start {start}: it is emptied and begins there")
        for segment in reversed(opening.segments):
            segment.remove()
        opening.producers.clear()
        _start_new(opening, start)
    opening.log_start_offset = start
    opening.epochs.truncate_head(start)
    opening.producers.truncate_head(start)
    opening.snapshots.remove_strays(segment.base_offset for segment in opening.segments)
