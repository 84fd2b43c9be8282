"""The pages of pipelines: what the log says of one that ran exactly once, and of one with a fault."""

from __future__ import annotations

from typing import Any

from ottla.client import Committed, TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.blocking.cluster import Cluster
from ottla.spark.tables.position import TableCommit
from ottla.testing.broker import Broker
from tests.clients.broker_process import eventually
from tests.console.world import Visitor
from tests.spark.relay_by_hand import HandMadePipeline, batch_of


def test_a_pipeline_is_listed_described_and_proved(visitor: Visitor, broker: Broker, cluster: Cluster) -> None:
    made = HandMadePipeline(Client(cluster), broker)
    for restarts, run in enumerate(("1a2b3c4d", "5e6f7a8b", "9c0d1e2f")):
        made.spark_run, made.restarts = run, restarts
        made.run()
    (row,) = [row for row in visitor.json("/pipelines.json")["pipelines"] if row["pipeline"] == made.group]
    assert (row["batch"], row["restarts"]) == (2, 2) and row["transaction"] == f"eos/{made.group}" and row["state"] == "CompleteCommit"
    found = visitor.json(f"/api/v1/pipeline?name={made.group}")
    assert (found["last_batch"], found["commits"], found["rows_written"], found["lag"], found["restarts"]) == (2, 3, 30, 70, 2)
    assert found["positions"] == [{"topic": made.source.topic, "partition": 0, "committed": 30, "end": 100, "lag": 70}]
    query = f"/pipeline/verify?name={made.group}&sinks={made.sink}"
    assert "Proved: each source offset is in exactly one of 3 batches" in visitor.get(query)
    proof = visitor.json(f"/api/v1{query}")
    assert (proof["proved"], proof["batches"], proof["rows_in"], proof["rows_out"], proof["faults"]) == (True, 3, 30, 30, [])
    assert [(one["partition"], one["rows"]) for one in proof["sink"]] == [(0, 15), (1, 15)]


def test_a_pipeline_that_writes_to_a_table_is_listed(visitor: Visitor, broker: Broker, cluster: Cluster) -> None:
    """It has no transaction: the group's offsets are committed after the table."""
    source = TopicPartition(broker.create_topic("source-of-a-table"), 0)
    commit = TableCommit("to-a-table", 4, "token", "query", 3, 5, "", {source: (0, 5)}, {}, run="1a2b3c4d", restarts=1)
    client = Client(cluster)
    client.produce_batches({source: [batch_of(*(b"%d" % number for number in range(7)), is_transactional=False)]})
    client.commit(commit.group, commit.committed())
    client.commit("of-another-program", {source: Committed(1, metadata="a note")})

    def listed() -> dict[str, Any]:
        return {row["pipeline"]: row for row in visitor.json("/pipelines.json")["pipelines"]}

    eventually(lambda: listed().get("to-a-table", {}).get("lag") == 2, 20)
    row = listed()["to-a-table"]
    assert (row["batch"], row["restarts"], row["state"], row["transaction"]) == (3, 1, None, None)
    assert "of-another-program" not in listed()
    assert visitor.json("/api/v1/pipeline?name=to-a-table")["last_batch"] == 3


def test_a_batch_that_was_written_twice_is_found(visitor: Visitor, broker: Broker, cluster: Cluster) -> None:
    made = HandMadePipeline(Client(cluster), broker)
    made.run(written=2)
    page = visitor.get(f"/pipeline/verify?name={made.group}&sinks={made.sink}")
    assert "Not proved: the table has the faults." in page
    assert visitor.json(f"/api/v1/pipeline/verify?name={made.group}&sinks={made.sink}")["faults"]


def test_restarts_of_a_pipeline_that_does_not_count_them_are_not_known(visitor: Visitor) -> None:
    (row,) = [row for row in visitor.json("/pipelines.json")["pipelines"] if row["pipeline"] == "copier"]
    assert row["batch"] == 0 and row["restarts"] is None
    assert visitor.json("/api/v1/pipeline?name=copier")["restarts"] == "not known"


def test_what_is_no_pipeline_is_a_sentence(visitor: Visitor) -> None:
    assert "No pipeline has run with the group &#39;shop&#39;" in visitor.get("/pipeline?name=shop", 404)
    assert "No pipeline has run" in visitor.get("/pipeline", 404)
    assert "Name the pipeline" in visitor.get("/pipeline/verify?name=copier", 400)
    assert "nothing to prove" in visitor.get("/pipeline/verify?name=shop&sinks=quiet")
    assert "not found" in visitor.get("/pipeline/verify?name=shop&sinks=no-such-topic", 404)
