"""The process that looks into records: inspects a batch that a client sent, finds a time in a stored one.

Run by `inspections.py` through `adapters/worker_process.py`. Orders are independent of each other and touch no file.
"""

from __future__ import annotations

from ottla.adapters.worker_process import serve
from ottla.storage.record_orders import perform


def main() -> None:
    serve(perform)
