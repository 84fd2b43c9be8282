"""The room that staged records take on this broker: whose they are, how much there may be, when they go, and whose turn it is to attach.

Every stage (`stages.py`) is entered here with what it counts for. A chunk counts as at least `CHARGE_BYTES_MIN`, so that the index in
memory is bounded by the same quotas as the files. Stages that nothing was added to for `ottla.stage.retention.ms` are dropped; files are
removed in a thread. Attaching is long work: it goes in turns of the loop, one manifest after the other (`attaching.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.config import BrokerConfig
from ottla.base.errors import ApiError, ErrorCode, StorageError
from ottla.base.loop.turns import Turns
from ottla.base.ports import Clock, Disk, TimerHandle, Timers
from ottla.base.types import TopicPartition
from ottla.replication.leader import Leader
from ottla.replication.stages import PartitionStages, Stage
from ottla.storage.stage_file import SUFFIX, StageFile

CHARGE_BYTES_MIN = 16 << 10
TURN_MS = 5


class _Attaches:
    """The manifests of one producer that are on their way into one partition, and what waits for them."""

    __slots__ = ("count", "waiting")

    def __init__(self) -> None:
        self.count = 0
        self.waiting: list[Callable[[], None]] = []


class StageSpace:
    """All stages of one broker, by age."""

    def __init__(
        self, *, config: BrokerConfig, disk: Disk, clock: Clock, timers: Timers, remove_later: Callable[[list[str]], None]
    ) -> None:
        self._config = config
        self._disk = disk
        self._clock = clock
        self._timers = timers
        self._remove_later = remove_later
        self._stages: dict[Stage, None] = {}  # those that were added to last stand last
        self._of_principal: dict[str, int] = {}
        self._timer: TimerHandle | None = None
        self._files = 0
        self.turns = Turns(clock, timers, TURN_MS)
        self._attaching: dict[tuple[TopicPartition, int], _Attaches] = {}
        self.charged_bytes = 0
        # What has happened since the start, for metrics: bytes staged, chunks refused for want of room, bytes expired.
        self.staged_bytes = 0
        self.refused = 0
        self.expired_bytes = 0

    def __len__(self) -> int:
        return len(self._stages)

    def of(self, leader: Leader) -> PartitionStages:
        """The stages of a partition that is led here, in this term."""
        if leader.stages is None:
            leader.stages = PartitionStages(self, leader.log)
        return leader.stages

    def charged_to(self, principal: str) -> int:
        """What the stages of a principal count for, in bytes."""
        return self._of_principal.get(principal, 0)

    # The order of a producer's appends

    def begin_attach(self, key: TopicPartition, producer_id: int) -> None:
        """A manifest for this partition was accepted from the producer; what follows it must wait (`call_when_attached`)."""
        self._attaching.setdefault((key, producer_id), _Attaches()).count += 1

    def end_attach(self, key: TopicPartition, producer_id: int) -> None:
        """A manifest was attached or refused: after the last one, what waits is tried again."""
        attaches = self._attaching[key, producer_id]
        attaches.count -= 1
        if not attaches.count:
            del self._attaching[key, producer_id]
            for function in attaches.waiting:
                function()

    def call_when_attached(self, key: TopicPartition, producer_id: int, function: Callable[[], None]) -> bool:
        """Calls `function` when all manifests of the producer have their outcome; False if there are none."""
        attaches = self._attaching.get((key, producer_id))
        if attaches is not None:
            attaches.waiting.append(function)
        return attaches is not None

    # For `PartitionStages`

    def new_file(self, directory: str) -> StageFile:
        """A file in the log directory of a partition's directory. Names say nothing of tokens, which are secrets."""
        self._files += 1
        return StageFile(self._disk, f"{directory.rpartition('/')[0]}/{self._files:012}{SUFFIX}")

    def require_room(self, principal: str, size: int) -> None:
        """Refuses a chunk of so many bytes with THROTTLING_QUOTA_EXCEEDED if it goes over a quota."""
        charge = max(size, CHARGE_BYTES_MIN)
        self.expire()
        total_max, principal_max = self._config.ottla_stage_bytes_max, self._config.ottla_stage_principal_bytes_max
        if self.charged_bytes + charge > total_max:
            raise self._refusal(f"{self.charged_bytes} bytes are staged, ottla.stage.bytes.max is {total_max}")
        if self.charged_to(principal) + charge > principal_max:
            own = self.charged_to(principal)
            raise self._refusal(f"{principal} has staged {own} bytes, ottla.stage.principal.bytes.max is {principal_max}")

    def _refusal(self, message: str) -> ApiError:
        self.refused += 1
        return ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)

    def charge(self, stage: Stage, size: int) -> None:
        """A chunk of so many bytes was added to the stage."""
        charge = max(size, CHARGE_BYTES_MIN)
        stage.charged_bytes += charge
        self.charged_bytes += charge
        self._of_principal[stage.principal] = self.charged_to(stage.principal) + charge
        self.staged_bytes += size
        self.touch(stage)

    def touch(self, stage: Stage) -> None:
        """The stage is in use: its time begins anew."""
        self._stages.pop(stage, None)
        self._stages[stage] = None
        stage.touched_ms = self._clock.monotonic_ms()
        if self._timer is None:
            self._timer = self._timers.call_later(self._config.ottla_stage_retention_ms, self._on_timer)

    def forget(self, stage: Stage) -> None:
        """The stage was dropped: gives its room back and removes its file."""
        self._stages.pop(stage, None)
        self.charged_bytes -= stage.charged_bytes
        left = self.charged_to(stage.principal) - stage.charged_bytes
        if left:
            self._of_principal[stage.principal] = left
        else:
            self._of_principal.pop(stage.principal, None)
        stage.charged_bytes = 0
        self._remove_later([stage.file.path])

    # Expiry

    def expire(self) -> None:
        """Drops the stages whose time is over."""
        now_ms, retention_ms = self._clock.monotonic_ms(), self._config.ottla_stage_retention_ms
        while self._stages:
            oldest = next(iter(self._stages))
            if now_ms - oldest.touched_ms < retention_ms:
                return
            self.expired_bytes += oldest.file.size_bytes
            oldest.drop()

    def _on_timer(self) -> None:
        self._timer = None
        self.expire()
        if self._stages:
            oldest = next(iter(self._stages))
            due_ms = oldest.touched_ms + self._config.ottla_stage_retention_ms - self._clock.monotonic_ms()
            self._timer = self._timers.call_later(max(due_ms, 1), self._on_timer)

    def close(self) -> None:
        """The broker stops: gives up what is being attached, drops everything and removes the files at once."""
        if self._timer is not None:
            self._timer.cancel()
        self._remove_later = self._remove
        self.turns.drop()
        for stage in list(self._stages):
            stage.drop()

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            try:
                self._disk.remove(path)
            except StorageError:
                continue  # the next start sweeps
