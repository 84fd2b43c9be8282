"""`make bench`: measures one broker, and in the same run a bare loop that only receives, checks and writes.

usage: python -m tools.bench.main [--rounds 3] [--scale 1.0] [--only "produce 1 KB,consume 1 KB"]

It prints tables without thresholds. docs/performance.md has the budgets and measured figures.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tools.bench import console, front_door, groups, log_length, metrics_cost, transactions
from tools.bench.brokers import Broker, start_bare_loop, start_ottla
from tools.bench.loads import LOADS, WITHOUT_COORDINATORS
from tools.bench.operations import command_throughput, rebalance, restart_after_kill
from tools.bench.report import Row, header, machine, number, run_rounds

PARTITIONS = (1, 100, 2000)


def arguments(description: str | None, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="times each load is run on each broker (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the amount of work (default 1)")
    parser.add_argument("--only", default="", help="names of loads, separated by semicolons")
    args = parser.parse_args(argv)
    args.names = [name.strip() for name in args.only.split(";") if name.strip()] or list(LOADS)
    unknown = [name for name in args.names if name not in LOADS]
    if unknown:
        parser.error(f"no load named {unknown[0]!r}; there are: {'; '.join(LOADS)}")
    return args


def start_and_idle_memory() -> list[Row]:
    """Measures the time from process start to READY, and the idle memory with 1, 100 and 2,000 partitions."""
    times = []
    for _ in range(5):
        broker = start_ottla()
        times.append(broker.start_ms)
        broker.stop()
    rows = [("process start to READY", "ms", statistics.median(times))]
    base = 0.0
    for count in PARTITIONS:
        broker = start_ottla()
        create_partitions(broker, count)
        time.sleep(1)
        memory = broker.resident_mib()
        base = base or memory
        rows.append((f"memory, idle, {count:,} partition{'s' if count > 1 else ''}", "MiB", memory))
        if count > 1:
            rows.append(("of it for each further partition", "KiB", (memory - base) * 1024 / (count - 1)))
        broker.stop()
    return rows


def scrapes() -> list[Row]:
    return [(f"/metrics of 2,000 partitions, {cost.label}", "ms of the loop", cost.total_ms) for cost in metrics_cost.measure()]


def large_groups() -> list[Row]:
    return [
        (f"consumer group of 1,000 members, 5,000 partitions: {cost.label}", "ms of CPU", cost.milliseconds) for cost in groups.measure()
    ]


def alone(ottla: Broker, scale: float) -> list[Callable[[], list[Row]]]:
    """Returns the measurements of a broker alone, without the bare loop."""
    return [
        start_and_idle_memory,
        front_door.measure,
        lambda: command_throughput(ottla, scale),
        lambda: rebalance(ottla),
        large_groups,
        lambda: transactions.open_ids(scale),
        lambda: transactions.committed_reads(scale),
        scrapes,
        console.measure,
        log_length.log_length,
        lambda: restart_after_kill(scale),
    ]


def create_partitions(broker: Broker, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic("idle", count, 1)])["idle"].result(120)


def print_rows(measure: Callable[[], list[Row]]) -> None:
    """Prints the rows of a measurement. If it fails, the error is printed instead."""
    try:
        rows = measure()
    except Exception as error:
        print(f"| {type(error).__name__}: {error} | | |", flush=True)
        return
    for what, unit, figure in rows:
        print(f"| {what} | {unit} | {number(figure)} |", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(__doc__, argv)
    print(f"{machine()}; {args.rounds} rounds, scale {args.scale}\n")
    ottla, bare = start_ottla(), start_bare_loop()
    try:
        if not args.only:
            print("| one broker | unit | ottla |\n| --- | --- | --- |", flush=True)
            for measure in alone(ottla, args.scale):
                print_rows(measure)
        print(f"\n{header(['ottla', 'bare'])}", flush=True)
        run_rounds([ottla, bare], args.names, args.rounds, args.scale, {"bare": WITHOUT_COORDINATORS})
        print(f"\nmemory after the loads: ottla {ottla.resident_mib():.0f} MiB, bare loop {bare.resident_mib():.0f} MiB")
    finally:
        ottla.stop()
        bare.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
