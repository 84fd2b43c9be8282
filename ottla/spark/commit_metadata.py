"""The text beside each committed offset of a pipeline's group: which batch of which query it ends, and what that batch wrote.

It is committed in the same transaction as the offset, so the relay can compare it where offsets alone decide nothing (a batch that moved
none), and `verify` can compare the sink with it. JSON of some dozen bytes, far below `offset.metadata.max.bytes` (4096).
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class CommitMetadata(NamedTuple):
    """What one batch did, said of one source partition.

    `start` is the partition's offset at the start of the batch (the committed offset is its end); `rows` and `digest` are of the whole
    output of the batch, in all partitions (`OutputDigest`). `topic_id` is the id of the partition's topic, empty where it is not known.
    `apart` is a checksum of the offsets of all sources if several of them read a partition and stand apart after this batch; then the
    committed offset is that of the slowest.
    """

    query_id: str
    batch_id: int
    start: int
    rows: int = 0
    digest: str = ""
    topic_id: str = ""
    apart: str = ""

    def to_text(self) -> str:
        """The metadata of an offset commit."""
        value = {"q": self.query_id, "b": self.batch_id, "s": self.start, "n": self.rows, "d": self.digest}
        if self.topic_id:
            value["t"] = self.topic_id
        if self.apart:
            value["a"] = self.apart
        return json.dumps(value, separators=(",", ":"))


def parse_metadata(text: str) -> CommitMetadata | None:
    """The metadata of an offset that a pipeline committed; None for the text of another committer."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    needed: list[Any] = [value.get(key) for key in "qbsnd"]
    if [type(one) for one in needed] != [str, int, int, int, str]:
        return None
    topic_id, apart = (str(found) if isinstance(found := value.get(key), str) else "" for key in "ta")
    return CommitMetadata(*needed)._replace(topic_id=topic_id, apart=apart)
