"""Compares the responses of Apache Kafka with its StandardAuthorizer and of Ottla to clients that have none, one or all of the rights of an
API.

`python -m tools.compare_rights` starts one of each. Rights are given by host: the administrator uses 127.0.0.1 and the tested client
127.0.0.2, so that neither side needs a login. For every API that both support and that needs a right, it sends the requests of
`tests/security/test_rights.py` without rights, with each single right of the table in `handlers/served_apis.py`, and with all of them. The
answers must have the same error codes and show the same things. Ids, times, addresses and messages are not compared. `KNOWN` has the
reasons of known differences.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.base.acls import ANY, CLUSTER_NAME, Permission, ResourceType
from ottla.base.errors import ErrorCode, WireError
from ottla.handlers.served_apis import TABLE, Right, ServedApi
from ottla.wire.framing import load
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.schema import Struct
from tests.clients.sample_world import World
from tests.clients.wire_client import In, WireClient
from tests.security.test_rights import VARIANTS, VERSIONS_OF, Maker, _sensible

ADMIN, CLIENT = "127.0.0.1", "127.0.0.2"
SETTINGS = (
    "allow.everyone.if.no.acl.found=true", "group.initial.rebalance.delay.ms=0", "auto.create.topics.enable=true",
    "offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1", "share.coordinator.state.topic.num.partitions=1",
)  # fmt: skip
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECONDS_MAX = 30
T = TypeVar("T")

_LATER = "Kafka's broker or coordinator has it a moment later"
KNOWN: dict[tuple[str, str], str] = {
    ("Fetch", "*"): "a replica without CLUSTER_ACTION is refused as a whole",
    ("Metadata", "*"): "a topic that is made by asking is there in the same answer",
    ("FindCoordinator", "*"): _LATER,
    ("DeleteTopics", "*"): "the id of a new topic is known to Kafka's broker a moment later",
    ("AlterPartitionReassignments", "none"): "Kafka's refusal repeats the partitions of the request",
    ("ListPartitionReassignments", "none"): "Kafka's refusal repeats the partitions of the request",
    ("DescribeUserScramCredentials", "none"): "Kafka does not answer",
    ("DescribeQuorum", "*"): "the nodes of a quorum",
    ("ConsumerGroupHeartbeat", "*"): _LATER,
    ("ShareGroupHeartbeat", "*"): _LATER,
    ("ShareGroupDescribe", "*"): "topics that a member has subscribed to are hidden as well, and Kafka assigns a moment later",
    ("ShareAcknowledge", "*"): _LATER,
    ("AlterShareGroupOffsets", "READ GROUP"): "the id of a topic that may not be read is hidden",
}
"""The reasons of intended differences, by API and rights (`*`: any)."""


class Client(WireClient):
    """A connection from a given loopback address."""

    def __init__(self, port: int, host: str) -> None:
        super().__init__(port)
        self.socket.close()
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX, source_address=(host, 0))


class Side:
    """A broker with rules, and the topics, groups and ids (`World`) that its administrator has created."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port
        self.admin = Client(port, ADMIN)
        answer = self.admin.ask(ApiVersionsRequest(client_software_name="compare", client_software_version="1"), 3)
        self.versions = {key.api_key: key.max_version for key in answer.api_keys}
        self._create([_rule(kind, 2, ADMIN) for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)])
        self._create([_rule(ResourceType.CLUSTER, 2, ADMIN)])
        self.world = self._patiently(lambda: World(self.admin))

    def close(self) -> None:
        self.admin.socket.close()

    def grant(self, rights: Sequence[Right]) -> bool:
        """Gives the client these rights and no others, and waits until they are in force. Returns False if the broker does not know one of
        them.
        """
        mine = {"resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY, "principal_filter": None}
        rest = {"host_filter": CLIENT, "operation": ANY, "permission_type": ANY}
        self.admin.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**mine, **rest)]), 3)  # type: ignore[arg-type]
        is_known = self._create([_rule(right.resource_type, right.operation, CLIENT) for right in rights])
        wanted = {(int(right.resource_type), int(right.operation)) for right in rights} if is_known else set()
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            found = self.admin.ask(DescribeAclsRequest(**mine, **rest), 3)  # type: ignore[arg-type]
            if {(resource.resource_type, acl.operation) for resource in found.resources for acl in resource.acls} == wanted:
                return is_known
            time.sleep(0.02)
        raise SystemExit(f"{self.name}: rules are not in force after {SECONDS_MAX} s")

    def answer(self, maker: Maker, version: int) -> str:
        """Returns the part of the client's answer that must be equal on both sides."""
        request = self._patiently(lambda: maker(self.world, In(version)))
        client = Client(self.port, CLIENT)
        try:
            return shape(client.ask(request, version))
        except (AssertionError, WireError, TimeoutError) as error:
            return f"no answer: {error}"
        finally:
            client.socket.close()

    def _patiently(self, make: Callable[[], T]) -> T:
        """Retries while a coordinator of Kafka is starting."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                return make()
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def _create(self, creations: Sequence[AclCreation]) -> bool:
        answer = self.admin.ask(CreateAclsRequest(creations=list(creations)), 3)
        return all(result.error_code == 0 for result in answer.results)


def _rule(kind: int, operation: int, host: str) -> AclCreation:
    name = CLUSTER_NAME if kind == ResourceType.CLUSTER else "*"
    return AclCreation(
        resource_type=kind, resource_name=name, resource_pattern_type=3, principal="User:*", host=host, operation=operation,
        permission_type=Permission.ALLOW,
    )  # fmt: skip


# The comparison

_NUMBER = re.compile(r"-\d+$")
SHOWN = ("name", "topic", "group_id", "transactional_id", "resource_name", "topic_name", "key", "principal")


def shape(value: Any) -> str:
    """Returns the error codes of a response, the names that it shows, and whether it has ids and records."""
    if isinstance(value, Struct):
        parts = [_field(field.name, getattr(value, field.name)) for field in value.__fields__]
        return "{" + " ".join(part for part in parts if part) + "}"
    return str(value)


def _field(name: str, value: Any) -> str:
    if name.endswith("error_code"):
        return ErrorCode(value).name if value else ""
    if isinstance(value, list) and value and isinstance(value[0], Struct):
        inner = "some" if name in ("configs", "synonyms") else " ".join(sorted(dict.fromkeys(map(shape, value))))
        return f"{name}=[{inner}]"
    if isinstance(value, Struct):
        return f"{name}={shape(value)}"
    if name in SHOWN:
        return f"{name}={_NUMBER.sub('-N', value) if isinstance(value, str) else value}"
    if name in ("topic_id", "records"):
        return f"{name}={'there' if value and any(bytes(value)) else 'none'}" if isinstance(value, (bytes, bytearray, memoryview)) else ""
    if name.endswith("authorized_operations"):
        return f"{name}={value:#x}"
    return ""


def codes(answer: str) -> str:
    """Returns the error codes of a response."""
    if answer.startswith("no answer"):
        return "no answer"
    found = dict.fromkeys(word for word in re.findall(r"[A-Z][A-Z_]{3,}", answer) if word in ErrorCode.__members__)
    return ", ".join(f"`{name}`" for name in found) or "served"


class Outcome(NamedTuple):
    """The responses of both sides to one request of a client with some rights."""

    api: str
    variant: int
    version: int
    rights: str
    theirs: str
    ours: str

    @property
    def why(self) -> str | None:
        """The known reason of a difference, or None."""
        return KNOWN.get((self.api, self.rights)) or KNOWN.get((self.api, "*"))

    @property
    def is_same(self) -> bool:
        return self.theirs == self.ours

    def row(self) -> str:
        """Returns the line of the table in `docs/rights.md`."""
        ours = "the same" if self.is_same else f"{codes(self.ours)}: {self.why or 'DIFFERS'}"
        request = f"{self.api} v{self.version}" + (f", request {self.variant + 1}" if self.variant else "")
        return f"| {request} | {self.rights.lower()} | {codes(self.theirs)} | {ours} |"


def compare(theirs: Side, ours: Side, names: Sequence[str]) -> Iterator[Outcome]:
    for api in sorted(TABLE.values()):
        if not api.rights or api.key not in theirs.versions or api.key not in ours.versions or (names and api.name not in names):
            continue
        newest = min(api.max_version, theirs.versions[api.key], ours.versions[api.key])
        for rights in choices(api):
            if not (theirs.grant(rights) and ours.grant(rights)):
                continue
            for variant, maker in enumerate(makers(api)):
                version = VERSIONS_OF.get(maker, newest)
                try:
                    answers = [side.answer(maker, version) for side in (theirs, ours)]
                except TypeError:  # this version has no such request
                    continue
                yield Outcome(api.name, variant, version, words_of(rights), *answers)


def makers(api: ServedApi) -> list[Maker]:
    """Returns the functions that make the requests of an API, in the order of their numbers."""
    return [lambda world, make: _sensible(world, make, api), *VARIANTS.get(api.name, [])]


def words_of(rights: Sequence[Right]) -> str:
    return " + ".join(f"{right.operation.name} {right.resource_type.name}" for right in rights) or "none"


def choices(api: ServedApi) -> list[tuple[Right, ...]]:
    """Returns no right, each right of the API alone, and all of them."""
    single = [(right,) for right in api.rights]
    return [(), *single, *([tuple(api.rights)] if len(single) > 1 else [])]


@contextlib.contextmanager
def _both() -> Iterator[tuple[Side, Side]]:
    from tools.bench.brokers import start_kafka, start_ottla
    from tools.bench.peer import JARS

    kafka = start_kafka(JARS.absolute(), f"authorizer.class.name={STANDARD_AUTHORIZER}", *SETTINGS)
    try:
        settings = ("node.id=1", f"authorizer.class.name={STANDARD_AUTHORIZER}", *SETTINGS)
        words = [word for setting in settings for word in ("--set", setting)]
        ottla = start_ottla(*words)
        try:
            yield tuple(Side(name, int(broker.address.rpartition(":")[2])) for name, broker in (("kafka", kafka), ("ottla", ottla)))  # type: ignore[misc]
        finally:
            ottla.stop()
    finally:
        kafka.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Answers of Apache Kafka and of this broker to clients with some rights.")
    parser.add_argument("names", nargs="*", metavar="API", help="only these")
    parser.add_argument("--all", action="store_true", help="the answers that are equal as well")
    parser.add_argument("--table", action="store_true", help="the table of docs/rights.md, of all answers")
    args = parser.parse_args(arguments)
    load(0)
    with _both() as (theirs, ours):
        outcomes = list(compare(theirs, ours, args.names))
    if args.table:
        sys.stdout.write("".join(f"{outcome.row()}\n" for outcome in outcomes))
    unexplained = sum(not outcome.is_same and outcome.why is None for outcome in outcomes)
    for outcome in outcomes if not args.table else ():
        if outcome.is_same and not args.all:
            continue
        verdict = "same" if outcome.is_same else outcome.why or "DIFFERS"
        sys.stdout.write(f"{outcome.api} v{outcome.version} #{outcome.variant}, {outcome.rights}: {verdict}\n")
        sys.stdout.write(f"    kafka {outcome.theirs}\n" + ("" if outcome.is_same else f"    ottla {outcome.ours}\n"))
    same = sum(outcome.is_same for outcome in outcomes)
    apis = len(dict.fromkeys(outcome.api for outcome in outcomes))
    known = len(outcomes) - same - unexplained
    sys.stdout.write(f"{apis} APIs, {len(outcomes)} requests: {same} same, {known} known, {unexplained} differ\n")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
