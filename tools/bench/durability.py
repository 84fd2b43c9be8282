"""Measures the cost of acknowledgements after fsync: the same loads with and without `--sync`, alternately, in one run.

usage: python -m tools.bench.durability [--rounds 3] [--scale 1.0] [--only "produce 1 KB;consume 1 KB"]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from tools.bench.brokers import start_ottla
from tools.bench.main import arguments
from tools.bench.report import header, machine, run_rounds

LOADS = (
    "produce 1 KB, idempotent, acks=all",
    "one-record requests",
    "round trip 100 B, acks=1",
    "transaction of 10 records",
)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(__doc__, argv)
    print(f"{machine()}; {args.rounds} rounds, scale {args.scale}\n")
    plain, sync = start_ottla(), replace(start_ottla("--sync"), name="--sync")
    try:
        print(header(["ottla", "--sync"]), flush=True)
        run_rounds([plain, sync], args.names if args.only else LOADS, args.rounds, args.scale, {})
    finally:
        plain.stop()
        sync.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
