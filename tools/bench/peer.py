"""`make bench-peer`: runs the same loads on Ottla and on Apache Kafka, alternately.

usage: python -m tools.bench.peer [--rounds 3] [--scale 1.0] [--only "produce 1 KB;consume 1 KB"]

Needs a JDK 17 or later and Maven; Kafka's jars are fetched once into build/kafka.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tools.bench.brokers import KAFKA_VERSION, start_kafka, start_ottla
from tools.bench.main import arguments
from tools.bench.report import header, machine, run_rounds

JARS = Path("build/kafka")


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(__doc__, argv)
    print(f"{machine()}; Apache Kafka {KAFKA_VERSION}, one node, heap 1 GiB; {args.rounds} rounds, scale {args.scale}\n")
    kafka = start_kafka(JARS.absolute())
    ottla = start_ottla()
    try:
        print(header(["ottla", "kafka"]), flush=True)
        run_rounds([ottla, kafka], args.names, args.rounds, args.scale, {})
        print(f"\nstart to ready: ottla {ottla.start_ms:.0f} ms, kafka {kafka.start_ms:.0f} ms")
        print(f"memory after the loads: ottla {ottla.resident_mib():.0f} MiB, kafka {kafka.resident_mib():.0f} MiB")
    finally:
        ottla.stop()
        kafka.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
