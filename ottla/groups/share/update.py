"""Makes a new target assignment of a share group (`modern/update.py`)."""

from __future__ import annotations

from collections.abc import Generator

from ottla.groups.modern.topics import NAMES_PER_STEP, TopicIds
from ottla.groups.modern.update import EpochUpdate, Steps
from ottla.groups.shard import GroupShard
from ottla.groups.share.assignor import SHARE_ASSIGNORS, ShareMember
from ottla.groups.share.group import ShareGroup
from ottla.groups.share.records import ShareChange
from ottla.machine.contract import Decision
from ottla.machine.draft import Draft


class ShareUpdate(EpochUpdate[ShareChange]):
    """Computes a target assignment in steps, for the epoch that the group has at the first step."""

    def __init__(self, shard: GroupShard) -> None:
        super().__init__(shard, ShareGroup, ShareChange)

    def _all_steps(self) -> Steps[ShareChange]:
        group: ShareGroup | None = None

        def look(change: ShareChange, _now_ms: int) -> None:
            nonlocal group
            group, self._epoch = change.group.copy(), change.group.epoch

        yield look
        assert group is not None
        ready = {topic_id: share.partitions for topic_id, share in group.state_topics.initialized.items()}
        members = yield from _members(self._shard, group)
        target = yield from SHARE_ASSIGNORS[self._shard.settings.share_assignors[0]](members, ready)
        yield from self._log_target(group, target)

    def _after_rest(self) -> None:
        """Continues the answers to members that joined and wait for partitions."""

        def go_on(_now_ms: int) -> Decision:
            draft = Draft()
            for waiting in self._shard.take_joiners(self._group_id):
                waiting(draft)
            return draft.decision()

        self._shard.run(go_on)


def _members(shard: GroupShard, group: ShareGroup) -> Generator[None, None, list[ShareMember]]:
    ids = TopicIds(shard)
    members: list[ShareMember] = []
    work = 0
    for member_id, facts in group.facts.items():
        members.append(ShareMember(member_id, ids.of(facts.topics), group.target.get(member_id, {})))
        work += len(facts.topics)
        if work >= 5 * NAMES_PER_STEP:
            work = 0
            yield
    return members
