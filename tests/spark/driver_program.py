"""Runs a batch in a driver process that kills itself with -9 at a given point of the protocol.

    python -m tests.spark.driver_program PIPELINE BATCH EXECUTION POINT [staged]

PIPELINE is the pipeline's fields as JSON. POINT is `sent:KEY`, just after a request of this API key was written to the socket, or
`answered:KEY`, just after its answer was read. With `staged` the tasks stage their output.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from ottla.client.blocking.connection import BlockingConnection
from ottla.wire.framing import load
from tests.spark.pipeline import Pipeline

_send = BlockingConnection.send
_receive = BlockingConnection.receive


def arm(when: str, key: int) -> None:
    """Makes this process kill itself at the point."""

    def send(connection: BlockingConnection, body: Any, **options: Any) -> None:
        _send(connection, body, **options)
        if when == "sent" and key == body.API_KEY:
            os.kill(os.getpid(), signal.SIGKILL)

    def receive(connection: BlockingConnection, timeout_s: float | None = None) -> Any:
        answer = _receive(connection, timeout_s)
        if when == "answered" and isinstance(answer, load(key)[1]):
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(BlockingConnection, "send", send)  # noqa: B010  replaces a method, on purpose
    setattr(BlockingConnection, "receive", receive)  # noqa: B010


def main(arguments: list[str]) -> None:
    fields, batch_id, execution, point, *ways = arguments
    when, _, key = point.partition(":")
    pipeline = Pipeline(**json.loads(fields))
    outputs = pipeline.staged(int(batch_id), execution) if ways else None
    arm(when, int(key or -1))
    driver = pipeline.driver()
    driver.send(driver.outputs(int(batch_id), execution) if outputs is None else outputs, int(batch_id))


if __name__ == "__main__":
    main(sys.argv[1:])
