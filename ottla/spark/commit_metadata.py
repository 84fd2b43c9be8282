"""The metadata of each committed offset of a pipeline: the query and number of the batch that ends there, a digest of the batch's output,
and how often the pipeline was restarted.

If the offsets alone do not show whether a batch is committed (for example, a batch that moves no offset), the relay compares the metadata.
`verify` compares the sink with the metadata. The number of restarts is not compared. The metadata is JSON of 90 to 180 bytes, far below
`offset.metadata.max.bytes` (4096).
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class CommitMetadata(NamedTuple):
    """The description of one batch, stored with one source partition.

    `start` is the partition's offset at the start of the batch, -1 for a partition that is new in the batch; the committed offset is its
    end. `rows` and `digest` describe the batch's whole output in all partitions (`OutputDigest`). `topic_id` is the id of the partition's
    topic, empty if unknown. `apart` is a checksum of the offsets of all sources if several sources share a partition but not all offsets;
    the committed offset is then the lowest one. `run` is the start of Spark's id of the query's run, empty if unknown; `restarts` counts
    the runs before it that have committed a batch.
    """

    query_id: str
    batch_id: int
    start: int
    rows: int = 0
    digest: str = ""
    topic_id: str = ""
    apart: str = ""
    run: str = ""
    restarts: int = 0

    def to_text(self) -> str:
        value: dict[str, Any] = {"q": self.query_id, "b": self.batch_id, "s": self.start, "n": self.rows, "d": self.digest}
        if self.topic_id:
            value["t"] = self.topic_id
        if self.apart:
            value["a"] = self.apart
        if self.run:
            value["r"] = [self.run, self.restarts]
        return json.dumps(value, separators=(",", ":"))


def parse_metadata(text: str) -> CommitMetadata | None:
    """Parses the metadata of a pipeline's offset; returns None for the text of another committer."""
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
    found = CommitMetadata(*needed)._replace(topic_id=topic_id, apart=apart)
    match value.get("r"):
        case [str(run), int(restarts)]:
            return found._replace(run=run, restarts=restarts)
    return found
