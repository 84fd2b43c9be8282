"""The time line of a transactional id: when it entered each state, and the reason where its log cannot be read."""

from __future__ import annotations

import re

from ottla.base.acls import AclOperation, Binding, Pattern, Permission, ResourceType, Rule
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.client.core import acl_admin
from ottla.client.security import security_of
from ottla.testing.broker import Broker
from tests.console.world import Visitor, console_of


def test_a_transaction_has_a_time_line(visitor: Visitor, cluster: Cluster) -> None:
    with Producer(cluster, transactional_id="timed") as producer:
        producer.begin()
        producer.produce("quiet", b"x", partition=0)
        producer.commit()
        producer.begin()
        producer.produce("quiet", b"y", partition=0)
        producer.flush()
        page = visitor.get("/transaction?id=timed")
        assert re.search(r'<li aria-current="step">Ongoing <time data-at="[0-9.]+">20', page) and "<li>PrepareCommit</li>" in page
        steps = visitor.json("/api/v1/transaction?id=timed")["steps"]
        assert [step["state"] for step in steps] == ["Ongoing", "CompleteCommit", "PrepareCommit", "Ongoing", "Empty"]
        assert steps[0]["at"].startswith("20") and steps[0]["after"].endswith(" s") and steps[-1]["after"] is None
        assert [step["partitions"] for step in steps[:2]] == [1, 0]
        visitor.console.desk.snapshot.renew()  # type: ignore[union-attr]
        (row,) = [row for row in visitor.json("/transactions.json")["transactions"] if row["id"] == "timed"]
        assert (row["state"], row["epoch"], row["partitions"]) == ("Ongoing", visitor.json("/transaction.json?id=timed")["epoch"], 1)
        producer.abort()
    page = visitor.get("/transaction?id=timed")
    assert page.count('data-at="', page.index('<ol class="line"'), page.index("</ol>")) == 3, "Ongoing, PrepareAbort and CompleteAbort"


def test_a_user_that_may_not_read_the_log_sees_the_reason() -> None:
    users = {"admin": "admin-secret", "guest": "guest-secret"}
    settings = {"authorizer.class.name": "acl", "super.users": "User:admin"}
    rule = Rule("User:guest", "*", AclOperation.DESCRIBE, Permission.ALLOW)
    with Broker(topics=["here:1"], users=users, settings=settings) as broker:
        properties = {"security.protocol": broker.protocol, "sasl.mechanism": broker.config()["sasl.mechanism"]}
        login = security_of({**properties, "sasl.username": "admin", "sasl.password": "admin-secret"})
        cluster = Cluster(broker.bootstrap_server, security=login)
        acl_admin.create_acls(cluster, [Binding(Pattern(ResourceType.TRANSACTIONAL_ID, "hidden"), rule)])
        with Producer(cluster, transactional_id="hidden") as producer:
            producer.begin()
            producer.produce("here", b"x", partition=0)
            producer.commit()
        cluster.close()
        with console_of(broker.bootstrap_server, needs_login=True, properties=properties) as visitor:
            visitor.log_in("guest", "guest-secret")
            page = visitor.get("/transaction?id=hidden")
            assert "Times are not shown: this needs Read on the topic __transaction_state." in page and "CompleteCommit" in page
