"""The quotas, the expiry and the attaching of staged records on this broker.

Every stage (`stages.py`) is registered here with its charge. A chunk is charged at least `CHARGE_BYTES_MIN`, so that the quotas also bound
the index in memory. Stages that got no chunk and were not attached for `ottla.stage.retention.ms` are dropped; a thread removes their
files. Attaching takes long, so it is spread over iterations of the event loop, one manifest after the other (`attaching.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.broker_ports import Ages
from ottla.base.config import BrokerConfig
from ottla.base.errors import ApiError, ErrorCode, StorageError
from ottla.base.loop.turns import Turns
from ottla.base.ports import Disk, TimerHandle
from ottla.base.types import TopicPartition
from ottla.replication.leader import Leader
from ottla.replication.stages import PartitionStages, Stage
from ottla.storage.stage_file import SUFFIX, StageFile

CHARGE_BYTES_MIN = 16 << 10
TURN_MS = 5


class _Attaches:
    """The manifests of one producer that are being attached to one partition, and the functions that wait for them."""

    __slots__ = ("count", "waiting")

    def __init__(self) -> None:
        self.count = 0
        self.waiting: list[Callable[[], None]] = []


class StageSpace:
    """All stages of one broker, the least recently used first."""

    def __init__(self, *, config: BrokerConfig, disk: Disk, ages: Ages, remove_later: Callable[[list[str]], None]) -> None:
        self._config = config
        self._disk = disk
        self._clock, self._timers = ages
        self._remove_later = remove_later
        self._stages: dict[Stage, None] = {}
        self._of_principal: dict[str, int] = {}
        self._timer: TimerHandle | None = None
        self._files = 0
        self.turns = Turns(*ages, TURN_MS)
        self._attaching: dict[tuple[TopicPartition, int], _Attaches] = {}
        self.charged_bytes = 0
        # Metrics since the start: bytes staged, chunks refused by a quota, bytes expired.
        self.staged_bytes = 0
        self.refused = 0
        self.expired_bytes = 0

    def __len__(self) -> int:
        return len(self._stages)

    def of(self, leader: Leader) -> PartitionStages:
        """Returns the stages of a partition in this term of its leader."""
        if leader.stages is None:
            leader.stages = PartitionStages(self, leader.log)
        return leader.stages

    def charged_to(self, principal: str) -> int:
        """Returns the charge of a principal's stages, in bytes."""
        return self._of_principal.get(principal, 0)

    # The order of a producer's appends

    def begin_attach(self, key: TopicPartition, producer_id: int) -> None:
        """Registers an accepted manifest of the producer; its later requests must wait for it (`call_when_attached`)."""
        self._attaching.setdefault((key, producer_id), _Attaches()).count += 1

    def end_attach(self, key: TopicPartition, producer_id: int) -> None:
        """Unregisters a manifest that was attached or refused; after the last one, calls the waiting functions."""
        attaches = self._attaching[key, producer_id]
        attaches.count -= 1
        if not attaches.count:
            del self._attaching[key, producer_id]
            for function in attaches.waiting:
                function()

    def call_when_attached(self, key: TopicPartition, producer_id: int, function: Callable[[], None]) -> bool:
        """Calls `function` when all manifests of the producer have ended; returns False if there are none."""
        attaches = self._attaching.get((key, producer_id))
        if attaches is not None:
            attaches.waiting.append(function)
        return attaches is not None

    # For `PartitionStages`

    def new_file(self, directory: str) -> StageFile:
        """Returns a file in the log directory of the partition; the first chunk creates it. Its name does not contain the secret token."""
        self._files += 1
        return StageFile(self._disk, f"{directory.rpartition('/')[0]}/{self._files:012}{SUFFIX}")

    def require_room(self, principal: str, size: int) -> None:
        """Raises THROTTLING_QUOTA_EXCEEDED if a chunk of this size would exceed a quota."""
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
        """Charges a chunk that was added to the stage."""
        charge = max(size, CHARGE_BYTES_MIN)
        stage.charged_bytes += charge
        self.charged_bytes += charge
        self._of_principal[stage.principal] = self.charged_to(stage.principal) + charge
        self.staged_bytes += size
        self.touch(stage)

    def touch(self, stage: Stage) -> None:
        """Restarts the retention time of a stage in use."""
        self._stages.pop(stage, None)
        self._stages[stage] = None
        stage.touched_ms = self._clock.monotonic_ms()
        if self._timer is None:
            self._timer = self._timers.call_later(self._config.ottla_stage_retention_ms, self._on_timer)

    def forget(self, stage: Stage) -> None:
        """Refunds the charge of a dropped stage and removes its file."""
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
        """Drops the expired stages."""
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
        """Ends all work at the stop of the broker: cancels the attaching, drops all stages and removes their files immediately."""
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
                continue  # the next start of the broker removes the file
