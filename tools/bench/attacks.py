"""Measures the effect of each attack of tests/hostile on an honest client, and prints a table. Each attack gets a new broker with default
settings. After the attacks it sends a mebibyte of one repeated name, and a mebibyte of different names, to every API, and prints the worst
cases.

usage: python -m tools.bench.attacks [--kafka] [--after 60] [words in the attack's name]

A memory limit that Ottla exceeds, and an honest client that it does not serve, are printed below the tables, and the exit code is 1.

With `--kafka` each attack is also run against a new node of Apache Kafka with a heap of 1 GiB (needs a JDK 17 and Maven).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.base.config import load as load_config
from ottla.handlers.served_apis import TABLE
from ottla.wire.framing import load
from tests.clients.broker_process import BrokerProcess
from tests.hostile.attacks import MIB, Attack, Outcome, Target, broken_bounds, corpus, measure, memory_bytes, settings_of
from tests.hostile.large_bodies import DIFFERENT, REPEATED, array_paths, filled
from tools.bench.brokers import KAFKA_VERSION, free_port, start_kafka
from tools.bench.report import number

WORST = 15
KAFKA_JARS = Path("build/kafka")
COLUMNS = "longest wait, ms | p99, ms | attack, ms | memory, MiB more | of workers, MiB"


class Attacked(NamedTuple):
    """The effect of an attack on Ottla, the failures, and the memory in bytes that the broker still uses some time later."""

    outcome: Outcome | None
    faults: Sequence[str] = ()
    kept_bytes: int = 0


def on_ottla(attack: Attack, after_s: float = 0) -> Attacked:
    """Runs an attack on a new broker, and reads the broker's memory `after_s` seconds later."""
    settings = settings_of(attack, other_port := free_port())
    with tempfile.TemporaryDirectory(prefix="ottla-attack-") as folder:
        broker = BrokerProcess(Path(folder), settings).start()
        try:
            outcome = measure(broker.port, broker.pid, attack.run, other_port)
            time.sleep(after_s)
            kept_bytes = memory_bytes(broker.pid, "VmRSS") - outcome.rss_before_bytes
        except (AssertionError, OSError) as error:
            return Attacked(None, [failure(error)])
        finally:
            broker.kill()
    faults = broken_bounds(outcome, load_config(assignments=settings)[0].ottla_memory_max_bytes)
    return Attacked(outcome, faults, kept_bytes)


def on_kafka(attack: Attack) -> Outcome:
    """Runs an attack on a new node of Apache Kafka."""
    kafka = start_kafka(KAFKA_JARS.absolute(), *settings_of(attack, free_port()))
    try:
        return measure(int(kafka.address.rpartition(":")[2]), kafka.process.pid, attack.run)
    finally:
        kafka.process.kill()
        kafka.stop()


def figures(found: Outcome) -> tuple[float, ...]:
    return found.longest_ms, found.p99_ms, found.attack_ms, found.growth_bytes / MIB, found.workers_peak_bytes / MIB


def failure(error: Exception) -> str:
    """Returns an error as a cell of a table."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:80]}".replace("|", "/")


def cells_of_kafka(attack: Attack) -> str:
    if attack.not_on_kafka:
        return f"{attack.not_on_kafka} | | |"
    try:
        return " | ".join(map(number, figures(on_kafka(attack))[:4]))
    except (AssertionError, OSError) as error:
        return f"{failure(error)} | | |"


def print_table(word: str, *, has_kafka: bool, after_s: float) -> list[str]:
    """Runs the attacks whose name contains `word`, and prints a row for each. Returns the failures."""
    columns, wrong = COLUMNS.split(" | "), list[str]()
    if after_s:
        columns.append(f"{after_s:g} s later, MiB more")
    if has_kafka:
        columns += [f"Kafka: {column}" for column in columns[:4]]
    print(f"| attack | {' | '.join(columns)} |\n|{' --- |' * (1 + len(columns))}", flush=True)
    for name, attack in corpus().items():
        if word in name:
            outcome, faults, kept_bytes = on_ottla(attack, after_s)
            wrong += [f"{name}: {fault}" for fault in faults]
            row = [name, *(map(number, figures(outcome)) if outcome else (faults[0], "", "", "", ""))]
            if after_s:
                row.append(number(kept_bytes / MIB))
            if has_kafka:
                row.append(cells_of_kafka(attack))
            print(f"| {' | '.join(row)} |", flush=True)
    return wrong


def large_body_rows() -> Iterator[tuple[float, str, Sequence[str]]]:
    """Yields (longest wait in ms, row, failures) for each API and kind of body."""
    for api in TABLE.values():
        paths = [] if api.is_extension else array_paths(load(api.key)[0], api.max_version)
        for path, kind in [(path, kind) for path in paths if len(path) == 1 for kind in (REPEATED, DIFFERENT)]:

            def run(target: Target, key: int = api.key, path: list[str] = path, kind: str = kind) -> None:
                version = TABLE[key].max_version
                body = filled(target.world.request(key, version), version, path, kind, MIB)
                frame = target.client.frame(body, version)
                target.begin()
                target.send(frame)

            name = f"{api.name}: a mebibyte of {path[0]}, {kind}"
            outcome, faults, _ = on_ottla(Attack(run))
            values = map(number, figures(outcome)[:4]) if outcome else (faults[0], "", "", "")
            yield outcome.longest_ms if outcome else 0.0, f"| {name} | {' | '.join(values)} |", [f"{name}: {fault}" for fault in faults]


def print_large_bodies() -> list[str]:
    """Prints the worst cases of large bodies. Returns the failures of all."""
    print("\n| body | longest wait, ms | p99, ms | answered in, ms | memory, MiB more |\n| --- | --- | --- | --- | --- |", flush=True)
    rows = sorted(large_body_rows(), reverse=True)
    for _, text, _ in rows[:WORST]:
        print(text, flush=True)
    print(f"\n{len(rows)} bodies; the median of their longest waits is {number(rows[len(rows) // 2][0])} ms", flush=True)
    return [fault for _, _, faults in rows for fault in faults]


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", action="store_true", help=f"attack Apache Kafka {KAFKA_VERSION} as well")
    parser.add_argument("--after", type=float, default=0, metavar="SECONDS", help="look at the memory so long after each attack")
    parser.add_argument("words", nargs="*", help="of the attack's name")
    args = parser.parse_args(argv)
    wrong = print_table(" ".join(args.words), has_kafka=args.kafka, after_s=args.after)
    if not args.words:
        wrong += print_large_bodies()
    for fault in wrong:
        print(f"error: {fault}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
