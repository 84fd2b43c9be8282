"""Kafka's Java tools with JAAS lines and TLS: each mechanism, correct and wrong credentials, users and rules. Ottla's tools run the same
command lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.testing.broker import Broker
from tests.clients.java_program import Java
from tools.compare_tools import JAVA_CLASSES, Seen, run_line

PASSWORDS = {"alice": 'a "quoted\\" secret;', "bob": "b"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOPIC = "guarded"
LIST = ("--list", "--exclude-internal")
CAROL = ("--entity-type", "users", "--entity-name", "carol")


class Line(NamedTuple):
    """A command line of one of Kafka's tools, with the name of a file of client properties."""

    tool: str
    login: str
    words: tuple[str, ...]
    stdin: str = ""


LINES = {
    **{f"administrator {mechanism}": Line("kafka-topics", f"administrator {mechanism}", LIST) for mechanism in MECHANISMS},
    **{f"alice {mechanism}": Line("kafka-topics", f"alice {mechanism}", LIST) for mechanism in MECHANISMS},
    **{f"wrong {mechanism}": Line("kafka-topics", f"wrong {mechanism}", LIST) for mechanism in MECHANISMS},
    **{f"unknown {mechanism}": Line("kafka-topics", f"unknown {mechanism}", LIST) for mechanism in MECHANISMS},
    "unknown authority": Line("kafka-topics", "unknown authority", LIST),
    "add user": Line(
        "kafka-configs", "administrator PLAIN", ("--alter", *CAROL, "--add-config", "SCRAM-SHA-256=[iterations=4096,password=carol's]")
    ),
    "describe user": Line("kafka-configs", "administrator PLAIN", ("--describe", *CAROL)),
    "refused": Line("kafka-configs", "alice PLAIN", ("--describe", *CAROL)),
    "add rule": Line(
        "kafka-acls", "administrator PLAIN", ("--add", "--allow-principal", "User:carol", "--operation", "Write", "--topic", TOPIC)
    ),
    "list rules": Line("kafka-acls", "administrator PLAIN", ("--list",)),
    "produce": Line("kafka-console-producer", "carol SCRAM-SHA-256", ("--topic", TOPIC, "--request-timeout-ms", "30000"), "value\n"),
    "consume": Line(
        "kafka-console-consumer", "administrator SCRAM-SHA-512",
        ("--topic", TOPIC, "--from-beginning", "--max-messages", "1", "--timeout-ms", "30000"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"authorizer.class.name": "acl", "connection.failed.authentication.delay.ms": 10}
    with Broker(settings=settings, users=PASSWORDS, tls=True, topics=[TOPIC]) as broker:
        yield broker


@pytest.fixture(scope="module")
def logins(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of client properties that the command lines name."""
    folder = tmp_path_factory.mktemp("logins")
    for mechanism in MECHANISMS:
        for user, name in ((None, "administrator"), ("alice", "alice")):
            broker.write_java_config(folder / f"{name} {mechanism}", user=user, mechanism=mechanism)
        bob = broker.write_java_config(folder / "bob", user="bob", mechanism=mechanism).read_text()
        (folder / f"wrong {mechanism}").write_text(bob.replace('password="b"', 'password="c"'))
        (folder / f"unknown {mechanism}").write_text(bob.replace('username="bob"', 'username="mallory"'))
    with_authority = broker.write_java_config(folder / "administrator").read_text().splitlines()
    (folder / "unknown authority").write_text("\n".join(line for line in with_authority if "truststore" not in line))
    bob = broker.write_java_config(folder / "bob", user="bob", mechanism="SCRAM-SHA-256").read_text()
    (folder / "carol SCRAM-SHA-256").write_text(bob.replace('username="bob" password="b"', 'username="carol" password="carol\'s"'))
    return folder


def words_of(line: Line, broker: Broker, logins: Path) -> list[str]:
    return ["--bootstrap-server", broker.direct_server, "--command-config", str(logins / line.login), *line.words]


@pytest.fixture(scope="module")
def theirs(
    broker: Broker, logins: Path, tmp_path_factory: pytest.TempPathFactory, need_program: Callable[[str], str]
) -> dict[str, Seen]:
    """The result of each command line; all run in one JVM."""
    folder = tmp_path_factory.mktemp("lines")
    script = []
    for name, line in LINES.items():
        (folder / f"{name}.in").write_text(line.stdin)
        script.append("\t".join([str(folder / name), JAVA_CLASSES[line.tool], *words_of(line, broker, logins)]))
    (folder / "script").write_text("\n".join(script) + "\n")
    done = Java(need_program).run("lines.Lines", str(folder / "script"))
    assert done.returncode == 0, done.stderr

    def read(name: str) -> Seen:
        code, out, err = ((folder / f"{name}.{suffix}").read_text() for suffix in ("code", "out", "err"))
        return Seen(int(code), out, err)

    return {name: read(name) for name in LINES}


@pytest.mark.timeout(900)  # the first run fetches Kafka's jars
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_right_and_wrong_credentials(theirs: dict[str, Seen], mechanism: str) -> None:
    assert theirs[f"administrator {mechanism}"].stdout.splitlines() == [TOPIC], theirs[f"administrator {mechanism}"].stderr
    without_rights = theirs[f"alice {mechanism}"]
    assert (without_rights.code, without_rights.stdout.split()) == (0, []), without_rights.stderr
    refusals = [theirs[f"{which} {mechanism}"] for which in ("wrong", "unknown")]
    for refusal in refusals:
        assert refusal.code == 1 and "SaslAuthenticationException" in refusal.stdout + refusal.stderr, refusal
        assert TOPIC not in refusal.stdout
    first, second = (line_of_error(refusal) for refusal in refusals)
    assert first == second, "whether a user exists is not to be found out"


def line_of_error(seen: Seen) -> str:
    line = next(line for line in (seen.stdout + seen.stderr).splitlines() if "SaslAuthenticationException" in line)
    return line.partition("SaslAuthenticationException")[2]


@pytest.mark.timeout(900)
def test_a_broker_whose_authority_is_unknown_is_not_trusted(theirs: dict[str, Seen]) -> None:
    refusal = theirs["unknown authority"]
    assert refusal.code == 1 and "SslAuthenticationException" in refusal.stdout + refusal.stderr and TOPIC not in refusal.stdout


@pytest.mark.timeout(900)
def test_users_and_rules_that_kafkas_tools_make(theirs: dict[str, Seen]) -> None:
    assert [name for name in ("add user", "describe user", "add rule", "list rules", "produce") if theirs[name].code] == []
    assert "SCRAM-SHA-256=iterations=4096" in theirs["describe user"].stdout
    assert "principal=User:carol, host=*, operation=WRITE, permissionType=ALLOW" in theirs["list rules"].stdout
    assert theirs["consume"].stdout.splitlines()[0] == "value", theirs["produce"].stderr
    assert "ClusterAuthorizationException" in theirs["refused"].stdout + theirs["refused"].stderr


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["administrator PLAIN", "alice SCRAM-SHA-256", "describe user", "list rules", "consume"])
def test_ours_say_the_same(broker: Broker, logins: Path, theirs: dict[str, Seen], name: str) -> None:
    line = LINES[name]
    ours = run_line([line.tool, *words_of(line, broker, logins)], line.stdin)
    assert (ours.code, sorted(ours.stdout.split())) == (theirs[name].code, sorted(theirs[name].stdout.split())), ours.stderr
