"""The live wire: frames as they pass, one of them field by field, and all of them as a file that `ottla wire` reads."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.analysis.frame_capture import as_capture
from ottla.analysis.frames import SeenFrame
from ottla.cli.captures.conversation import conversation
from ottla.client.blocking import scram_admin
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin
from ottla.client.core.own_apis import describe_frames
from ottla.client.errors import ConnectError
from ottla.console import wire
from ottla.testing.broker import Broker
from ottla.wire.apis import KEYS
from ottla.wire.framing import write_request
from ottla.wire.messages.describe_frames import FramePair
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.wire_client import WireClient
from tests.console.world import SCRIPT, Visitor, console_of, write

PRODUCE = f"?api=Produce&client={SCRIPT[:8]}"


def test_requests_are_shown_as_they_pass(visitor: Visitor, cluster: Cluster) -> None:
    visitor.get("/wire")
    write(cluster, "quiet", b"a value on the wire", key=SCRIPT.encode())
    rows = visitor.json(f"/wire.json{PRODUCE}")["frames"]
    newest = rows[0]
    assert newest["client"] == SCRIPT and newest["frame"].startswith("Produce v") and newest["ms"] >= 0 and newest["errors"] is None
    assert [row["number"] for row in rows] == sorted((row["number"] for row in rows), reverse=True)
    page = visitor.get(f"/wire{PRODUCE}")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page and SCRIPT not in page
    assert 'hx-trigger="every 1s"' in page and 'hx-trigger="every 1s"' not in visitor.get("/wire?state=paused")
    assert visitor.json("/wire.json?client=unknown")["frames"] == []
    seen = visitor.json(f"/wire/frame.json?number={newest['number']}")
    assert any(span["value"] == '"a value on the wire"' for span in seen["request"]) and seen["client_id"] == SCRIPT
    assert [span["value"] for span in seen["response"] if span["field"] == "correlation_id"] == [str(seen["correlation_id"])]
    assert "a producer appends record batches" in seen["notes"][0]
    assert "is no longer in memory" in visitor.get("/wire/frame?number=99999999", 404)
    assert "There is no broker 9" in visitor.get("/wire?broker=9", 404)


def test_an_error_of_an_answer_is_shown(visitor: Visitor) -> None:
    visitor.get("/wire")
    visitor.get("/topics/no-such-topic", 404)
    rows = visitor.json("/wire.json?api=Metadata&client=ottla-console")["frames"]
    assert "UNKNOWN_TOPIC_OR_PARTITION" in {row["errors"] for row in rows}


def test_passwords_have_no_content(visitor: Visitor, cluster: Cluster) -> None:
    visitor.get("/wire")
    scram_admin.alter_scram(cluster, "wired", passwords={"SCRAM-SHA-256": ("wire-secret", 4096)})
    row = visitor.json("/wire.json?api=AlterUserScramCredentials")["frames"][0]
    page = visitor.get(f"/wire/frame?number={row['number']}")
    assert "can have secrets" in page and "were not recorded" in page and "wired" not in page


def frames_in(data: bytes) -> list[SeenFrame]:
    return list(conversation(data, None))


def test_the_file_has_what_the_page_has(visitor: Visitor, cluster: Cluster) -> None:
    visitor.get("/wire")
    write(cluster, "quiet", b"recorded to a file")
    answer = visitor.http.get(f"/wire/capture{PRODUCE}")
    assert answer.headers["content-disposition"].endswith('.pcap"')
    found = frames_in(answer.content)
    assert len(found) >= 2 and not any(frame.problem for frame, _ in found)
    request = next(frame for frame, _ in reversed(found) if not frame.is_response)
    assert request.api_key == KEYS["Produce"] and any("recorded to a file" in str(span.value) for span in request.spans)


def pair(number: int, client: str = "10.0.0.1:5000", **fields: object) -> FramePair:
    request = write_request(KEYS["ListGroups"], 0, number, "c", b"")[4:]
    made = FramePair(
        number=number, at_ms=1_700_000_000_000 + number, duration_us=250, client=client, api_key=KEYS["ListGroups"], correlation_id=number,
        request_bytes=len(request), request=request, response_bytes=10, response=number.to_bytes(4, "big") + bytes(6),
    )  # fmt: skip
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_frames_that_are_not_whole_are_left_out_of_the_file() -> None:
    cut, secret, unanswered = pair(2, request_bytes=999), pair(3, request=None, response=None), pair(4, response=None, duration_us=-1)
    half = pair(5, response_bytes=99)
    data = as_capture([pair(1), cut, secret, unanswered, half, pair(6, "[::1]:7000")], ("broker.example", 9092))
    found = frames_in(data)
    assert [(frame.correlation_id, frame.is_response) for frame, _ in found] == [
        (1, False), (1, True), (4, False), (5, False), (6, False), (6, True),
    ]  # fmt: skip
    assert "10.0.0.1:5000 -> 127.0.0.1:9092" in found[0].place and "7000" in found[-1].place


def test_the_memory_of_a_console_is_bounded_and_starts_again_with_the_broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(wire, "KEPT_BYTES_MAX", 10_000)
    broker = BrokerProcess(tmp_path).start()
    watcher = Cluster(broker.address, with_extensions=True)
    made = wire.Wire(watcher)
    try:
        made.look(0)
        with Cluster(broker.address) as asker:
            for _ in range(50):
                asker.refresh([])
        seen = made.look(0).pairs
        assert 2 < len(seen) < 10 and seen[-1].number >= 50 and made.pair(0, seen[-1].number) is seen[-1]
        assert made.pair(0, 0) is None
        broker.crash()
        eventually(lambda: looked(made))
        with Cluster(broker.address) as asker:
            asker.refresh([])
        assert [one.number for one in made.look(0).pairs][:1] == [0]
    finally:
        watcher.close()
        broker.stop()


def test_pairs_that_are_missed_count_once(tmp_path: Path) -> None:
    """Requests that wait for their answers take all of the broker's memory, so it drops what the console has not read yet."""
    broker = BrokerProcess(tmp_path).start()
    long_wait = FetchRequest(
        max_wait_ms=600_000, min_bytes=1, session_epoch=-1,
        topics=[FetchTopic(topic="silent", partitions=[FetchPartition(partition=0, partition_max_bytes=100)])],
    )  # fmt: skip
    with ExitStack() as stack:
        stack.callback(broker.stop)
        asker = stack.enter_context(Cluster(broker.address))
        admin.create_topic(asker, "silent", partitions=1)
        watcher = stack.enter_context(Cluster(broker.address, with_extensions=True))
        made = wire.Wire(watcher)
        made.look(0)
        asker.refresh([])
        eventually(lambda: made.look(0).pairs)
        for _ in range(5):
            asker.refresh([])
        for _ in range(30):
            client = stack.enter_context(WireClient(broker.port, client_id="c" * 16_384))
            client.send(b"".join(client.frame(long_wait, 11) for _ in range(10)))
        eventually(lambda: not describe_frames(watcher, 0).pairs)
        missed = made.look(0).missed
        assert missed >= 5
        assert [made.look(0).missed for _ in range(3)] == [missed] * 3


def looked(made: wire.Wire) -> wire.Seen | None:
    """Looks, and returns None if the connection was lost."""
    try:
        return made.look(0)
    except ConnectError:
        return None


def test_a_broker_that_records_no_frames_says_so() -> None:
    with Broker(settings={"ottla.advertise.level": "4.3"}) as broker, console_of(broker.bootstrap_server) as visitor:
        assert "only Ottla&#39;s brokers record the frames" in visitor.get("/wire")
        assert "only Ottla&#39;s brokers record the frames" in visitor.get("/wire/capture", 404)


def test_frames_are_for_users_that_may_alter_the_cluster() -> None:
    settings = {"authorizer.class.name": "acl", "super.users": "User:admin"}
    with Broker(users={"admin": "admin-secret", "guest": "guest-secret"}, settings=settings) as broker:
        properties = {"security.protocol": broker.protocol, "sasl.mechanism": broker.config()["sasl.mechanism"]}
        with console_of(broker.bootstrap_server, needs_login=True, properties=properties) as visitor:
            visitor.log_in("guest", "guest-secret")
            assert "users that may Alter the cluster" in visitor.get("/wire", 403)
            visitor.log_in("admin", "admin-secret")
            visitor.get("/wire")
            visitor.get("/topics")
            assert re.search("Metadata|ListGroups|ListTransactions", visitor.get("/wire"))
