"""What each attack of tests/hostile does to an honest client beside it: a table, each on a fresh broker with default settings. Then every
API with a mebibyte of one name repeated and of different names, of which the worst are shown.

usage: python -m tools.bench.attacks [--kafka] [words that the attack's name contains]

With `--kafka` each attack is sent to Apache Kafka as well, a fresh node with a heap of 1 GiB for each (a JDK 17 and Maven are needed).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ottla.requests.apis import TABLE
from ottla.wire.framing import load
from tests.clients.broker_process import BrokerProcess
from tests.hostile.attacks import Attack, Outcome, Run, Target, corpus, measure, settings_of
from tests.hostile.large_bodies import DIFFERENT, REPEATED, array_paths, filled
from tools.bench.brokers import KAFKA_VERSION, free_port, start_kafka
from tools.bench.report import number

MIB = 1 << 20
WORST = 15
KAFKA_JARS = Path("build/kafka")
COLUMNS = "longest wait, ms | p99, ms | attack, ms | memory, MiB more | of workers, MiB"


def on_ottla(attack: Attack) -> Outcome:
    """Runs an attack on a fresh broker."""
    other_port = free_port()
    with tempfile.TemporaryDirectory(prefix="ottla-attack-") as folder:
        broker = BrokerProcess(Path(folder), settings_of(attack, other_port)).start()
        try:
            return measure(broker.port, broker.pid, attack.run, other_port)
        finally:
            broker.kill()
            assert broker.process is not None and broker.process.stdout is not None
            broker.process.stdout.close()


def on_kafka(attack: Attack) -> Outcome:
    """Runs an attack on a fresh node of Apache Kafka."""
    kafka = start_kafka(KAFKA_JARS.absolute(), *settings_of(attack, free_port()))
    try:
        return measure(int(kafka.address.rpartition(":")[2]), kafka.process.pid, attack.run)
    finally:
        kafka.process.kill()
        kafka.stop()


def figures(found: Outcome) -> tuple[float, ...]:
    rise = (found.rss_peak_bytes - found.rss_before_bytes) / MIB
    return found.longest_ms, found.p99_ms, found.attack_ms, rise, found.workers_peak_bytes / MIB


def failure(error: Exception) -> str:
    """What went wrong, as a cell of a table."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:80]}".replace("|", "/")


def measured(name: str, run: Run) -> tuple[float, str]:
    """(longest wait in ms, row) of an attack on a fresh broker."""
    try:
        found = on_ottla(Attack(run))
    except (AssertionError, OSError) as error:
        return 0.0, f"| {name} | {failure(error)} | | | |"
    return found.longest_ms, f"| {name} | {' | '.join(map(number, figures(found)[:4]))} |"


def cells(attack: Attack, *, is_kafka: bool) -> str:
    if is_kafka and attack.not_on_kafka:
        return f"{attack.not_on_kafka} | | | |"
    try:
        found = figures(on_kafka(attack) if is_kafka else on_ottla(attack))
    except (AssertionError, OSError) as error:
        return f"{failure(error)} | | | |" + ("" if is_kafka else " |")
    return " | ".join(map(number, found[:4] if is_kafka else found))


def print_table(word: str, *, has_kafka: bool) -> None:
    columns = COLUMNS.split(" | ")
    if has_kafka:
        columns += [f"Kafka: {column}" for column in columns[:4]]
    print(f"| attack | {' | '.join(columns)} |\n|{' --- |' * (1 + len(columns))}", flush=True)
    for name, attack in corpus().items():
        if word in name:
            row = [name, cells(attack, is_kafka=False)]
            if has_kafka:
                row.append(cells(attack, is_kafka=True))
            print(f"| {' | '.join(row)} |", flush=True)


def large_body_rows() -> Iterator[tuple[float, str]]:
    """(longest wait, row) of each API and kind of body."""
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
            yield measured(name, run)


def print_large_bodies() -> None:
    print("\n| body | longest wait, ms | p99, ms | answered in, ms | memory, MiB more |\n| --- | --- | --- | --- | --- |", flush=True)
    rows = sorted(large_body_rows(), reverse=True)
    for _, text in rows[:WORST]:
        print(text, flush=True)
    print(f"\n{len(rows)} bodies; the median of their longest waits is {number(rows[len(rows) // 2][0])} ms", flush=True)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", action="store_true", help=f"attack Apache Kafka {KAFKA_VERSION} as well")
    parser.add_argument("words", nargs="*", help="of the attack's name")
    args = parser.parse_args(argv)
    print_table(" ".join(args.words), has_kafka=args.kafka)
    if not args.words:
        print_large_bodies()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
