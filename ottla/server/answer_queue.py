"""The answers of one connection, sent in the order of its requests.

A request that is answered later has a slot in the queue, and the answers behind the slot wait. Answers that may be sent are collected and
sent in one write (`flush`). The memory of waiting requests, and of the answers behind them, is charged to the connection
(`memory/answer_memory.py`).
"""

from __future__ import annotations

from collections import deque

from ottla.base.ports import Channel, Part, Slice
from ottla.server.memory.answer_memory import AnswerAccount, ConnectionLimits, Slot


class AnswerQueue:
    """The unsent answers of one connection, and slots for requests that are not answered yet."""

    def __init__(self, channel: Channel, limits: ConnectionLimits, host: str) -> None:
        self._channel = channel
        self._limits = limits
        self.account: AnswerAccount = limits.memory.open(channel, host)
        self.slots: deque[Slot] = deque()
        self.out_bytes = 0
        """Bytes that the next `flush` sends."""
        self._out: list[Part] = []

    def add_whole(self, frame: bytes | bytearray) -> None:
        """Adds the answer of the request that is being executed, in one piece of bytes."""
        if self.slots:
            self.hold(Slot([frame], len(frame)))
        else:
            self._out.append(frame)
            self.out_bytes += len(frame)

    def add(self, parts: list[Part]) -> None:
        """Adds the answer of the request that is being executed."""
        if self.slots:
            self.hold(Slot(parts, memory_bytes(parts)))
        else:
            self._out += parts
            self.out_bytes += sum(map(len, parts))

    def reserve(self, size: int = 0) -> Slot:
        """Reserves a slot for the request that is being executed. The request uses `size` bytes of memory until it is answered."""
        slot = Slot(None, size)
        self.hold(slot)
        return slot

    def hold(self, slot: Slot) -> None:
        """Appends the slot of the request that is being executed."""
        self.slots.append(slot)
        account, size = self.account, slot.size
        account.parked_bytes += size
        account.memory.total_bytes += size

    def charge(self, slot: Slot, size: int) -> None:
        """Sets the memory that the request of the slot uses to `size` bytes."""
        self.account.park(size - slot.size)
        slot.size = size

    def fill(self, slot: Slot, parts: list[Part]) -> None:
        """Puts the answer into its slot; an empty list means that the request has no answer."""
        slot.parts = parts
        slots = self.slots
        if slots and slots[0] is not slot:  # an earlier request is not answered yet
            self.charge(slot, memory_bytes(parts))
            return
        account = self.account
        while slots and (head := slots[0].parts) is not None:
            size = slots.popleft().size
            account.parked_bytes -= size
            account.memory.total_bytes -= size
            self._out += head
            self.out_bytes += len(head[0]) if len(head) == 1 else sum(map(len, head))

    def flush(self) -> None:
        """Sends the collected answers."""
        out = self._out
        if not out:
            return
        self._out, self.out_bytes = [], 0
        if self._limits.on_answers is not None:
            self._limits.on_answers(self, out)
        if len(out) > 1 and not any(isinstance(part, Slice) for part in out):
            out = [b"".join(out)]  # type: ignore[arg-type]
        self._channel.send(out)
        if self._channel.queued_bytes:
            self.account.note_unsent()

    def is_full(self, in_flight_max: int) -> bool:
        """Whether no further request may be executed: too many are in flight, or the unsent answers and waiting requests have too many
        bytes."""
        used_bytes = self.out_bytes + self.account.parked_bytes + self._channel.queued_bytes
        return len(self.slots) >= in_flight_max or used_bytes >= self._limits.queued_bytes_max

    def is_empty(self) -> bool:
        """Whether every request has been answered and all answers were written to the socket."""
        return not self.slots and not self._out and self._channel.queued_bytes == 0

    def close(self) -> None:
        """Abandons the waiting requests, because the connection is closed."""
        self.account.close()
        for slot in self.slots:
            abandon, slot.abandon = slot.abandon, None  # `abandon` refers to the slot: breaks the reference cycle
            if abandon is not None:
                abandon()
        self.slots.clear()
        self._out = []


def memory_bytes(parts: list[Part]) -> int:
    """Returns the size of the parts that are in memory. The others are slices of files."""
    return sum(len(part) for part in parts if not isinstance(part, Slice))
