"""Measures the cost of security: TLS, logins and access rules, compared with the plain listener and, with --kafka, with Apache Kafka.

usage: python -m tools.bench.security [--rounds 3] [--scale 1.0] [--kafka]

It prints four tables: TLS compared with plain (MB/s and the broker's CPU); one-record requests with SASL and access rules compared with
plain; the cost of one decision over 10,000 rules in this process; SCRAM logins while another client makes round trips.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from confluent_kafka import Producer

from ottla.adapters.clock import SystemClock
from ottla.base.acls import AclOperation, Binding, Pattern, PatternType, Permission, ResourceType, Rule
from ottla.client.addresses import parse_address
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.blocking.scram_admin import alter_scram
from ottla.client.core.acl_admin import create_acls
from ottla.client.security import Security
from ottla.security.acl_authorizer import AclAuthorizer
from ottla.security.audit import AuditLog
from tools.bench.brokers import Broker, start_kafka, start_ottla
from tools.bench.loads import confirmed, new_topic, percentiles
from tools.bench.peer import JARS
from tools.bench.report import Row, header, machine, number, run_rounds

RULES = 10_000
LOGINS = 1_000
LOGIN_THREADS = 8
DECISIONS = 20_000
USER, PASSWORD = "bench", "of-a-bench"
TLS_LOADS = ("produce 1 KB", "consume 1 KB", "round trip 100 B, acks=1")
ONE_RECORD = ("one-record requests",)


# Brokers


def certificate(folder: Path) -> Path:
    """Creates a key and a self-signed certificate for localhost, in one file."""
    program = shutil.which("openssl")
    if program is None:
        sys.exit("bench: openssl is needed to make a certificate")
    key, chain, both = folder / "key.pem", folder / "chain.pem", folder / "both.pem"
    command = [
        program, "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-days", "2", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(chain),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    both.write_text(key.read_text() + chain.read_text())
    return both


def over_tls(broker: Broker, name: str, both: Path) -> Broker:
    broker.name = name
    broker.client = {"security.protocol": "SSL", "ssl.ca.location": str(both)}
    return broker


def ottla_by_tls(both: Path) -> Broker:
    settings = ("listeners=SSL://127.0.0.1:0", f"ssl.keystore.location={both}")
    return over_tls(start_ottla(*words(settings)), "ottla, TLS", both)


def kafka_by_tls(both: Path) -> Broker:
    trusted = both.with_name("chain.pem")  # at its start, Kafka checks that its own brokers could connect
    settings = (
        "ssl.keystore.type=PEM", f"ssl.keystore.location={both}", "ssl.truststore.type=PEM", f"ssl.truststore.location={trusted}",
    )  # fmt: skip
    return over_tls(start_kafka(JARS.absolute(), *settings, protocol="SSL"), "kafka, TLS", both)


def with_login(broker: Broker, name: str) -> Broker:
    broker.name = name
    broker.client = login("PLAIN")
    return broker


def login(mechanism: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD,
    }  # fmt: skip


def ottla_by_sasl() -> Broker:
    """Starts a broker with access rules. Few of them are for the user, who is not a super user."""
    settings = (
        "listeners=SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256", "authorizer.class.name=acl",
        "super.users=User:admin", f"ottla.sasl.plain.users={USER}={PASSWORD} admin={PASSWORD}",
    )  # fmt: skip
    return with_login(start_ottla(*words(settings)), "ottla, SASL and rules")


def kafka_by_sasl() -> Broker:
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
        f'{key}="{value}"' for key, value in {
            "username": "admin", "password": PASSWORD, f"user_{USER}": PASSWORD, "user_admin": PASSWORD,
        }.items()
    )  # fmt: skip
    settings = (
        "sasl.enabled.mechanisms=PLAIN", "sasl.mechanism.inter.broker.protocol=PLAIN",
        f"listener.name.sasl_plaintext.plain.sasl.jaas.config={jaas};",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:admin;User:ANONYMOUS",
    )  # fmt: skip
    return with_login(start_kafka(JARS.absolute(), *settings, protocol="SASL_PLAINTEXT"), "kafka, SASL and rules")


def words(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def give_rights(broker: Broker) -> None:
    """Creates the rules that the loads need, and rules for many other users."""
    allow = [AclOperation.CREATE, AclOperation.WRITE, AclOperation.READ, AclOperation.DELETE]
    own = [Binding(Pattern(ResourceType.TOPIC, "bench-", PatternType.PREFIXED), rule(f"User:{USER}", operation)) for operation in allow]
    others = [Binding(Pattern(ResourceType.TOPIC, f"topic-{count}"), rule(f"User:user-{count}")) for count in range(200)]
    with Cluster(broker.address, security=Security({**login("PLAIN"), "sasl.username": "admin"})) as cluster:
        create_acls(cluster, [*own, *others])


def rule(principal: str, operation: AclOperation = AclOperation.READ) -> Rule:
    return Rule(principal, "*", operation, Permission.ALLOW)


# Decisions


def decisions() -> list[Row]:
    """Measures one decision over 10,000 literal and prefixed rules of 1,000 principals: cached, not cached, and over an empty table."""
    chance = random.Random(7)
    rules: dict[Pattern, list[Rule]] = {}
    for count in range(RULES):
        kind = PatternType.PREFIXED if count % 4 == 0 else PatternType.LITERAL
        pattern = Pattern(ResourceType.TOPIC, f"team-{count % 100}.topic-{count // 2}", kind)
        rules.setdefault(pattern, []).append(rule(f"User:user-{chance.randrange(1000)}"))
    full, empty = (AclAuthorizer(AuditLog(SystemClock())) for _ in range(2))
    full.replace(rules)
    empty.replace({})
    names = [f"team-{chance.randrange(100)}.topic-{chance.randrange(RULES)}" for _ in range(DECISIONS)]
    return [
        (f"a decision, {RULES:,} rules, not remembered", "us", microseconds(full, names, forgets=True)),
        ("the same without rules", "us", microseconds(empty, names, forgets=True)),
        (f"a decision, {RULES:,} rules, remembered", "us", microseconds(full, names[:1000], forgets=False)),
    ]


def microseconds(authorizer: AclAuthorizer, names: Sequence[str], *, forgets: bool) -> float:
    asked: Any = SimpleNamespace(principal="User:user-7", host="10.0.0.1", listener="SSL", is_inter_broker=False)
    if not forgets:
        for name in names:
            authorizer.permits(asked, AclOperation.READ, ResourceType.TOPIC, name)
    else:
        authorizer._decisions.clear()
        names = list(dict.fromkeys(names))
    started = time.thread_time()
    for name in names:
        authorizer.permits(asked, AclOperation.READ, ResourceType.TOPIC, name)
    return (time.thread_time() - started) / len(names) * 1e6


# Logins


def scram_logins(broker: Broker) -> list[Row]:
    """Measures logins, one after the other on several threads, and the round trips of a connected client before and during the logins."""
    with Cluster(broker.address, security=Security({**login("PLAIN"), "sasl.username": "admin"})) as cluster:
        alter_scram(cluster, USER, passwords={"SCRAM-SHA-256": (PASSWORD, 4096)})
    topic, security = new_topic(broker), Security(login("SCRAM-SHA-256"))
    address = parse_address(broker.address)
    alone = round_trips(broker, topic, lambda: False)
    cpu, started = broker.cpu_seconds(), time.perf_counter()
    under_way = threading.Event()

    def all_logins() -> None:
        with ThreadPoolExecutor(LOGIN_THREADS) as pool:
            for done in [pool.submit(lambda: BlockingConnection(address, security=security).open().close()) for _ in range(LOGINS)]:
                done.result()
        under_way.set()

    thread = threading.Thread(target=all_logins)
    thread.start()
    meanwhile = round_trips(broker, topic, lambda: not under_way.is_set())
    thread.join()
    seconds = time.perf_counter() - started
    return [
        (f"{LOGINS:,} logins by SCRAM-SHA-256, client on the same cores", "a second", LOGINS / seconds),
        ("of it the broker, round trips included", "CPU us a login", (broker.cpu_seconds() - cpu) / LOGINS * 1e6),
        *((f"round trip of another client alone, {name}", "", value) for name, value in alone.items()),
        *((f"round trip of another client meanwhile, {name}", "", value) for name, value in meanwhile.items()),
    ]


def round_trips(broker: Broker, topic: str, goes_on: Callable[[], bool], least: int = 300) -> dict[str, float]:
    client = Producer({**broker.options, "linger.ms": 0, "acks": "1", "log_level": 2})
    times: list[float] = []
    while len(times) < least or goes_on():
        times.append(confirmed(client, topic))
        time.sleep(0.002)
    return percentiles(times, "ms")


# Tables


def compare(title: str, starts: Sequence[Callable[[], Broker]], loads: Sequence[str], rounds: int, scale: float) -> None:
    brokers: list[Broker] = []
    try:
        for start in starts:
            brokers.append(start())
            if brokers[-1].client.get("sasl.mechanism"):
                give_rights(brokers[-1])
        print(f"\n{title}\n\n{header([broker.name for broker in brokers])}", flush=True)
        run_rounds(brokers, loads, rounds, scale, {})
    finally:
        for broker in brokers:
            broker.stop()


def alone() -> None:
    """Measures Ottla without a comparison: decisions in this process, and logins."""
    print("\n| security | unit | ottla |\n| --- | --- | --- |", flush=True)
    broker = ottla_by_sasl()
    try:
        give_rights(broker)
        for what, unit, figure in (*decisions(), *scram_logins(broker)):
            print(f"| {what} | {unit} | {number(figure)} |", flush=True)
    finally:
        broker.stop()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka as well; needs a JDK and Maven")
    args = parser.parse_args(argv)
    print(f"{machine()}; {args.rounds} rounds, scale {args.scale}")
    alone()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-tls-") as folder:
        both = certificate(Path(folder))
        by_tls = [start_ottla, lambda: ottla_by_tls(both), *([lambda: kafka_by_tls(both)] if args.kafka else [])]
        compare("TLS", by_tls, TLS_LOADS, args.rounds, args.scale)
    by_sasl = [start_ottla, ottla_by_sasl, *([kafka_by_sasl] if args.kafka else [])]
    compare("SASL and access rules", by_sasl, ONE_RECORD, args.rounds, args.scale)
    return 0


if __name__ == "__main__":
    sys.exit(main())
