"""The states of a transactional id, read from `__transaction_state`: a committed, an aborted and an open transaction."""

from __future__ import annotations

from ottla.analysis.transaction_log import Step, current_times, steps_of
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.testing.broker import Broker


def test_the_states_of_a_transactional_id_are_read_from_the_log() -> None:
    topic = "payments"
    with Broker(topics=[f"{topic}:1"]) as broker, Cluster(broker.bootstrap_server) as cluster, Cluster(broker.bootstrap_server) as other:
        with Producer(cluster, transactional_id="stated") as producer, Producer(other, transactional_id="other") as beside:
            beside.begin()
            for end in (producer.commit, producer.abort):
                producer.begin()
                producer.produce(topic, b"x", partition=0)
                producer.flush()
                end()
            producer.begin()
            producer.produce(topic, b"x", partition=0)
            producer.flush()
            steps = steps_of(cluster, "stated")
            whole = ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "Ongoing", "PrepareAbort", "CompleteAbort", "Ongoing"]
            assert [step.state for step in steps] == whole
            assert [step.at_ms for step in steps] == sorted(step.at_ms for step in steps) and steps[0].at_ms > 1_600_000_000_000
            assert [step.partitions for step in steps if step.state == "Ongoing"] == [1, 1, 1]
            assert len({step.producer_id for step in steps}) == 1
            assert [step.state for step in steps_of(cluster, "stated", limit=2)] == whole[-2:]
            producer.abort()
        assert steps_of(cluster, "never used") == []


def test_the_times_of_the_current_transaction_are_its_own() -> None:
    def times(*states: str) -> dict[str, int]:
        return current_times([Step(at, state, 1, 0, 0) for at, state in enumerate(states)])

    assert times() == {}
    assert times("Empty") == {"Empty": 0}
    assert times("Empty", "Ongoing", "Ongoing") == {"Empty": 0, "Ongoing": 1}
    assert times("Ongoing", "PrepareAbort", "CompleteAbort", "Ongoing", "PrepareCommit") == {"Ongoing": 3, "PrepareCommit": 4}
    whole = ("Ongoing", "PrepareCommit", "CompleteCommit")
    assert times(*whole, *whole) == {"Ongoing": 3, "PrepareCommit": 4, "CompleteCommit": 5}
