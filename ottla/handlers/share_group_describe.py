"""ShareGroupDescribe: the epochs and members of share groups, and what each member has (KIP-932).

Behaviour: a group that is unknown or of another kind is GROUP_ID_NOT_FOUND. A group that reads a topic which the principal may not
describe is TOPIC_AUTHORIZATION_FAILED as a whole. UNSUPPORTED_VERSION while the feature `share.version` is at level 0.

Version notes: 0 was an early access version that no release serves any more.

Not done: nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.requests.context import Broker, RequestContext
from ottla.requests.group_descriptions import Kind, describe_groups
from ottla.requests.levels import require_share_groups
from ottla.wire.messages.share_group_describe import DescribedGroup, Member, ShareGroupDescribeRequest, ShareGroupDescribeResponse


def handle(broker: Broker, request: RequestContext, body: ShareGroupDescribeRequest) -> Any:
    return describe_groups(broker, request, SHARE, body.group_ids, with_operations=body.include_authorized_operations)


def topics_of(member: Member) -> Iterator[str]:
    yield from member.subscribed_topic_names
    yield from (topic.topic_name for topic in member.assignment.topic_partitions)


SHARE = Kind(
    response=ShareGroupDescribeResponse,
    group=DescribedGroup,
    ask=lambda machine, group_id, reply: machine.describe_share_groups([group_id], reply),
    topics_of=topics_of,
    require_offered=lambda broker: require_share_groups(broker.config.ottla_advertise_level),
)
