"""Actions on topics and groups, and what shows their effect: clones, trims, deletions of several, removed members, offsets from a file."""

from __future__ import annotations

from urllib.parse import urlencode

from ottla.analysis.reset_files import format_reset_file
from ottla.analysis.resets import ResetPlan, Step
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.producer import Producer
from ottla.client.core import admin, group_admin
from ottla.testing.broker import Broker
from tests.clients.broker_process import eventually
from tests.console.world import Visitor, commit, console_of, write


def test_a_topic_is_cloned_with_its_settings_but_without_records(visitor: Visitor, cluster: Cluster) -> None:
    admin.create_topic(cluster, "pattern", partitions=2, configs={"cleanup.policy": "compact", "retention.ms": "1234"})
    write(cluster, "pattern", b"stays", key=b"k")
    assert "was created as pattern is" in visitor.act("/topics/pattern", "/do/topics/pattern/clone", target="copy")
    (row,) = [row for row in visitor.json("/topics.json")["topics"] if row["topic"] == "copy"]
    assert (row["partitions"], row["records"], row["cleanup"]) == (2, 0, "compact")
    assert visitor.json("/api/v1/topics/copy/settings")["settings"][0]["source"] == "topic"
    assert "already exists" in visitor.act("/topics/pattern", "/do/topics/pattern/clone", 400, target="copy")


def test_records_before_an_offset_are_deleted(visitor: Visitor, cluster: Cluster) -> None:
    admin.create_topic(cluster, "long", partitions=1)
    write(cluster, "long", *(b"%d" % number for number in range(5)))
    assert "has offsets 0 to 5" in visitor.act("/topics/long", "/do/topics/long/trim", 400, partition="0", offset="6", typed="long")
    assert "begins at offset 3 now" in visitor.act("/topics/long", "/do/topics/long/trim", partition="0", offset="3", typed="long")
    (row,) = visitor.json("/api/v1/topics/long")["partitions"]
    assert (row["start"], row["end"]) == (3, 5) and "End offset (high watermark)" in visitor.get("/topics/long")
    (row,) = visitor.json("/api/v1/topics/long/statistics")["statistics"]
    assert (row["records"], row["share"]) == (2, "100.0 %") and row["at"] in (3, 4) and row["newest"].startswith("20")


def test_several_topics_are_deleted_after_a_look_at_the_list(visitor: Visitor, cluster: Cluster) -> None:
    for name in ("old-1", "old-2", "older"):
        admin.create_topic(cluster, name, partitions=1)
    visitor.console.desk.snapshot.renew()  # type: ignore[union-attr]
    path = "/delete-topics?names=old-*"
    assert [row["topic"] for row in visitor.json("/api/v1" + path)["topics"]] == ["old-1", "old-2"]
    assert "Type &#39;delete 2&#39; to confirm" in visitor.act(path, "/do/delete-topics", 400, typed="delete 3")
    assert "2 topics deleted." in visitor.act(path, "/do/delete-topics", typed="delete 2")
    assert {"old-1", "old-2", "older"} & set(cluster.topic_names()) == {"older"}
    assert "No topic matches" in visitor.get(path) and "Give names" in visitor.get("/delete-topics", 400)


def test_the_records_of_several_topics_are_deleted_after_a_look_at_the_list(visitor: Visitor, cluster: Cluster) -> None:
    for name, configs in (("full-1", {}), ("full-2", {}), ("full-compact", {"cleanup.policy": "compact"}), ("stays-full", {})):
        admin.create_topic(cluster, name, partitions=2, configs=configs)
        write(cluster, name, b"a", b"b", key=b"k")
    visitor.console.desk.snapshot.renew()  # type: ignore[union-attr]
    path = "/delete-topics?what=clear&names=full-*"
    assert len(visitor.json("/api/v1" + path)["topics"]) == 3 and "Nothing was deleted yet" in visitor.get(path)
    assert "Type &#39;clear 3&#39; to confirm" in visitor.act(path, "/do/clear-topics", 400, typed="delete 3")
    page = visitor.act(path, "/do/clear-topics", 400, typed="clear 3")
    assert "The records of 2 topics were deleted, but not full-compact: POLICY_VIOLATION" in page
    starts = {name: [row["records"] for row in visitor.json(f"/api/v1/topics/{name}")["partitions"]] for name in ("full-1", "stays-full")}
    assert starts == {"full-1": [0, 0], "stays-full": [2, 0]}
    path = "/delete-topics?what=clear&names=full-?"
    assert "The records of 2 topics were deleted." in visitor.act(path, "/do/clear-topics", typed="clear 2")
    assert "Choose" in visitor.get("/delete-topics?what=dance&names=full-*", 400)


def test_a_member_is_removed_and_the_others_read_on(visitor: Visitor, cluster: Cluster, broker: Broker) -> None:
    admin.create_topic(cluster, "read-by-a-pair", partitions=2)
    with Cluster(broker.bootstrap_server, client_id="leaver") as other, Consumer(other, group_id="pair") as reader:
        reader.subscribe(["read-by-a-pair"])
        eventually(lambda: reader.poll(0.2) or reader.positions)
        page = visitor.get("/group?name=pair")
        assert "Who reads what" in page and ">A</strong> leaver" in page
        (member,) = visitor.json("/group.json?name=pair")["members"]
        form = visitor.form("/group?name=pair", "/do/group/remove-member")
        done = visitor.post("/do/group/remove-member", {**form, "member": member["member"], "typed": "pair"})
        assert "leaver" in done and "was removed from pair" in done
        assert "has no member" in visitor.post("/do/group/remove-member", {**visitor_form(visitor), "member": "gone", "typed": "pair"}, 404)
        changes = visitor.json("/group.json?name=pair")["changes"]
        assert changes[0]["what"] == "members" and changes[0]["before"] == "1 member with 2 partitions"


def visitor_form(visitor: Visitor) -> dict[str, str]:
    """A form for a member that has left meanwhile: any form of the page has a token, and the group's name."""
    return visitor.form("/group?name=pair", "/do/group/delete")


def test_offsets_come_from_lines_as_the_command_line_exports_them(visitor: Visitor, cluster: Cluster) -> None:
    group = 'lines, "quoted"'
    commit(cluster, group, "orders", 1)
    places = (TopicPartition("orders", 0), TopicPartition("orders", 1))
    plans = {group: ResetPlan([Step(place, None, new) for place, new in zip(places, (4, 0), strict=True)], [])}
    assert "\norders,0,1\n</textarea>" in visitor.get(f"/group?{urlencode({'name': group})}"), "the committed offsets are filled in"
    exported, with_group = format_reset_file(plans), format_reset_file({**plans, "other": ResetPlan([], [])})
    assert with_group != exported
    for lines in (exported, with_group, exported.replace("\n", "\r\n\r\n")):
        query = urlencode({"name": group, "scenario": "from_file", "lines": lines})
        assert "Nothing was changed yet" in visitor.get(f"/group/reset?{query}")
        assert "were reset" in visitor.act(f"/group/reset?{query}", "/do/group/reset", typed=group)
        found = group_admin.committed_offsets(cluster, group)
        assert {place.partition: one.offset for place, one in found.items()} == {0: 4, 1: 0}
        group_admin.commit_offsets(cluster, group, dict.fromkeys(places, 2))
    refused = {
        "orders,0": "write topic,partition,offset", "other,orders,0,1": "names the group &#39;other&#39;", "": "names no partition",
        "a,b,c": "must be numbers", "orders,0,1\norders,1,x": "line 2", "orders,99999999999,1": "UNKNOWN_TOPIC_OR_PARTITION",
    }  # fmt: skip
    for lines, sentence in refused.items():
        query = urlencode({"name": group, "scenario": "from_file", "lines": lines})
        assert sentence in visitor.get(f"/group/reset?{query}", 404 if "UNKNOWN" in sentence else 400), lines


def test_messages_are_found_by_an_expression(visitor: Visitor, cluster: Cluster) -> None:
    admin.create_topic(cluster, "amounts", partitions=1)
    write(cluster, "amounts", *(b'{"amount": %d}' % number for number in range(20)), key=b"k")

    def found(where: str, **more: str) -> list[int]:
        answer = visitor.http.get("/api/v1/topics/amounts/messages", params={"from": "earliest", "where": where, **more})
        return [one["offset"] for one in answer.json()["records"]]

    assert found("value.amount > 16") == [17, 18, 19]
    assert found("value.amount > 16 and offset != 18", text="17") == [17]
    assert found("key * 99999999999 == 1") == []
    page = visitor.http.get("/topics/amounts/messages", params={"where": "__import__('os')"})
    assert page.status_code == 400 and "The filter takes comparisons" in page.text
    long = visitor.http.get("/topics/amounts/messages", params={"where": "offset == 1 or " * 100})
    assert long.status_code == 400 and "at most 1,000" in long.text


def test_transactions_that_hold_readers_back_are_listed(visitor: Visitor, cluster: Cluster) -> None:
    admin.create_topic(cluster, "held", partitions=1)
    with Producer(cluster, transactional_id="holder") as producer:
        producer.begin()
        producer.produce("held", b"open", partition=0)
        producer.flush()
        write(cluster, "held", b"behind it")
        for path, key in (("/transactions.json", "held"), ("/transactions/hanging.json", "held")):
            visitor.console.desk.snapshot.renew()  # type: ignore[union-attr]
            (row,) = [row for row in visitor.json(path)[key] if row["topic"] == "held"]
            assert (row["stable"], row["end"], row["held"], row["owner"]) == (0, 2, 2, "holder")
            assert row["mend"] == "ottla txn abort --transactional-id holder" and row["state"] == "open"
        producer.abort()


def test_partitions_below_and_at_the_minimum_of_replicas_are_counted() -> None:
    with Broker(topics=["fine:1", "short:2"]) as broker, Cluster(broker.bootstrap_server) as cluster:
        admin.alter_configs(cluster, admin.TOPIC_RESOURCE, "short", changes={"min.insync.replicas": "2"})
        with console_of(broker.bootstrap_server) as visitor:
            found = visitor.json("/overview.json")
            assert (found["below_min.insync.replicas"], found["at_min.insync.replicas"]) == ("2", "0")
            assert found["health"] == "2 refuse acks=all"
