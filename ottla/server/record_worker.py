"""The worker process that decodes records: validates a client's batch, or finds a timestamp in a stored batch.

Run by `inspections.py` through `adapters/worker_process.py`. Orders are independent of each other and touch no file.
"""

from __future__ import annotations

from ottla.adapters.worker_process import serve
from ottla.storage.record_orders import perform


def main() -> None:
    serve(perform)
