"""One member of a classic group: its protocols, its assignment, and its request that waits for an answer.

The log has a member's state as of the last group record. Later changes are soft state.
"""

from __future__ import annotations

from ottla.groups.commands import Protocols
from ottla.machine.contract import Reply
from ottla.wire.messages.group_records import MemberMetadata


class ClassicMember:
    """A member of a classic group. `join_reply` is set while a JoinGroup of the member waits, `sync_reply` while a SyncGroup waits."""

    __slots__ = (
        "asks_metadata_late",
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_reply",
        "timer_ms",
    )

    def __init__(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
        asks_metadata_late: bool = False,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.asks_metadata_late = asks_metadata_late
        self.is_new = False
        self.join_reply: Reply | None = None
        self.sync_reply: Reply | None = None
        self.deadline_ms = 0  # the session ends at this time unless the member sends a heartbeat
        self.timer_ms: int | None = None  # time of the scheduled session check; None if none is scheduled

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """Whether a JoinGroup or SyncGroup of the member is not answered yet. Such a member is treated as alive without heartbeats.
        Exception: a new member (`is_new`), whose first JoinGroup is not answered yet."""
        return self.join_reply is not None or self.sync_reply is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: dict[str, None]) -> str:
        """Returns the member's preferred protocol among the candidates, which all members support."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise AssertionError(f"member {self.member_id} knows none of the protocols that all members share")

    def to_record(self, protocol_name: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol_name),
            assignment=assignment,
        )

    @classmethod
    def from_record(cls, member: MemberMetadata, protocol_name: str | None) -> ClassicMember:
        return cls(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout if member.rebalance_timeout >= 0 else member.session_timeout,
            session_timeout_ms=member.session_timeout,
            protocols=((protocol_name or "", member.subscription),),
            assignment=member.assignment,
        )
