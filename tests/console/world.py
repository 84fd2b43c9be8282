"""A console over a broker process, without a socket between test and console."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.client.core import group_admin
from ottla.client.core.cluster import GROUP
from ottla.console.app import Console
from ottla.console.desk import Settings
from ottla.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology

SCRIPT = "<script>alert(1)</script>"
"""A text that would be run if a page had it as HTML."""


class Visitor:
    """A browser without scripts: keeps its cookie, and sends the forms that pages have."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.http = TestClient(console.app(), base_url="http://127.0.0.1:8080", follow_redirects=True, raise_server_exceptions=False)

    def get(self, path: str, status: int = 200) -> str:
        answer = self.http.get(path)
        assert answer.status_code == status, (path, answer.status_code, answer.text[:2000])
        assert "Traceback" not in answer.text
        return str(answer.text)

    def json(self, path: str) -> Any:
        return json.loads(self.get(path))

    def form(self, path: str, action: str) -> dict[str, str]:
        """Returns the hidden fields of a form on a page."""
        return self.hidden(self.get(path), action)

    def hidden(self, page: str, action: str) -> dict[str, str]:
        """Returns the hidden fields of a form in the text of a page."""
        _, found, rest = page.partition(f'<form action="{action}" method="post">')
        assert found, f"there is no form {action}"
        form = rest.partition("</form>")[0]
        pairs = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', form)
        return {name: value.replace("&lt;", "<").replace("&gt;", ">").replace("&#34;", '"').replace("&amp;", "&") for name, value in pairs}

    def post(self, action: str, form: dict[str, str], status: int = 200) -> str:
        answer = self.http.post(action, data=form)
        assert answer.status_code == status, (action, answer.status_code, answer.text[:2000])
        assert "Traceback" not in answer.text
        return str(answer.text)

    def act(self, path: str, action: str, status: int = 200, **fields: str) -> str:
        """Opens a page, fills a form and sends it."""
        return self.post(action, {**self.form(path, action), **fields}, status)

    def log_in(self, user: str, password: str, status: int = 200) -> str:
        return self.post("/login", {**self.form("/login", "/login"), "user": user, "password": password}, status)


@contextmanager
def console_of(address: str, properties: Mapping[str, str] | None = None, **settings: Any) -> Iterator[Visitor]:
    console = Console(Settings({"bootstrap.servers": address, **(properties or {})}, **settings))
    try:
        yield Visitor(console)
    finally:
        console.close()


def write(cluster: Cluster, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
    with Producer(cluster) as producer:
        for value in values:
            producer.produce(topic, value, key=key, partition=0)
        producer.flush()


def commit(cluster: Cluster, group: str, topic: str, offset: int, partition: int = 0) -> None:
    errors = group_admin.commit_offsets(cluster, group, {TopicPartition(topic, partition): offset})
    assert not any(errors.values())


def join_streams_group(cluster: Cluster, group: str, topic: str) -> None:
    """Makes a streams group with one member, which reads a topic. The member sends no further heartbeat."""
    request = StreamsGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=0, process_id=SCRIPT, rebalance_timeout_ms=60_000,
        topology=Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])]),
        active_tasks=[], standby_tasks=[], warmup_tasks=[],
    )  # fmt: skip
    answer = cluster.run(cluster.core.ask_coordinator(GROUP, group, request))
    assert not answer.error_code, answer.error_message
