"""Metrics that clients have pushed, in the form in which Prometheus reads them."""

from __future__ import annotations

import math

from prometheus_client.parser import text_string_to_metric_families

from ottla.base.uuids import uuid_to_text
from ottla.server.monitoring.metric_clients import PIECE, PushedMetrics, number_text
from ottla.server.monitoring.metric_page import Page
from ottla.telemetry.clients import ReportingClient
from ottla.telemetry.otlp import Kind, Point
from tests.telemetry.test_clients import World


class Scrape:
    """Each `push` adds a client with metrics. A scrape shows all of them."""

    def __init__(self) -> None:
        self.world = World()
        self.world.subscribe("a", {"metrics": "*"})

    def push(self, *points: Point, client_id: str = "app") -> ReportingClient:
        clients = self.world.clients
        client = clients.ask(bytes(16), client_id, self.world.connection)
        report = clients.new_report(client)
        for point in points:
            report.add(point)
        clients.keep(client, report)
        return client

    def page(self) -> tuple[bytes, int]:
        page, steps = Page(), 0
        for _ in PushedMetrics(self.world.clients).collect(page):
            steps += 1
        return page.encode(), steps

    def families(self) -> dict[str, tuple[str, list[tuple[dict[str, str], float]]]]:
        found = text_string_to_metric_families(self.page()[0].decode())
        return {
            family.name: (family.type, [(dict(sample.labels), sample.value) for sample in family.samples])
            for family in found
            if "client" in family.name and family.samples
        }


def test_series_and_their_labels() -> None:
    scrape = Scrape()
    connection = scrape.world.connection
    connection.client_software_name, connection.client_software_version = "librdkafka", "2.16.1"
    client = scrape.push(
        Point("org.apache.kafka.producer.a", Kind.GAUGE, (("node.id", "1"), ("x", 'a"b')), 1.5),
        Point("org.apache.kafka.producer.b", Kind.COUNTER, (), 7),
        client_id='my "app"\n',
    )
    known = {"client_id": 'my "app"\n', "client_instance_id": uuid_to_text(client.instance_id)}
    found = scrape.families()
    assert found["kafka_client_producer_a"] == ("gauge", [({**known, "node_id": "1", "x": 'a"b'}, 1.5)])
    assert found["kafka_client_producer_b"] == ("counter", [(known, 7)])
    software = {"client_software_name": "librdkafka", "client_software_version": "2.16.1", "client_source_address": "10.0.0.1"}
    assert found["ottla_client_info"] == ("gauge", [({**known, **software}, 1)])
    assert found["ottla_client_metrics_series"][1] == [({}, 2)]
    assert found["ottla_client_metrics_pushes"][1] == [({}, 1)]
    assert found["kafka_server_client_metrics_instance_count"][1] == [({}, 1)]


def test_clients_that_disagree() -> None:
    """All lines of a metric are adjacent, although the clients disagree about its kind."""
    scrape = Scrape()
    scrape.push(Point("a.total", Kind.COUNTER, (), 1), Point("b", Kind.GAUGE, (), 1))
    scrape.push(Point("a.total", Kind.GAUGE, (), 2), Point("b", Kind.GAUGE, (), 2))
    found = scrape.families()
    assert found["kafka_client_a_total"][0] == "unknown"
    assert [value for _, value in found["kafka_client_a_total"][1]] == [1, 2]
    assert [value for _, value in found["kafka_client_b"][1]] == [1, 2]


def test_names_of_the_broker_cannot_be_taken() -> None:
    scrape = Scrape()
    scrape.push(Point("ottla_info", Kind.GAUGE, (), 1), Point("process\n# TYPE", Kind.GAUGE, (), 1))
    assert {"kafka_client_ottla_info", "kafka_client_process___TYPE"} <= set(scrape.families())


def test_a_client_that_is_gone_is_shown_no_longer() -> None:
    scrape = Scrape()
    scrape.push(Point("a", Kind.GAUGE, (), 1))
    scrape.world.connection.closed()
    assert not {"kafka_client_a", "ottla_client_info"} & set(scrape.families())


def test_many_series_are_written_in_pieces() -> None:
    scrape = Scrape()
    steps = scrape.page()[1]
    scrape.push(*[Point("a", Kind.GAUGE, (("i", str(index)),), index) for index in range(3 * PIECE)])
    client = next(scrape.world.clients.reporting())
    assert client.report is not None
    assert scrape.page()[1] > steps + client.report.series_count // PIECE


def test_numbers() -> None:
    assert [number_text(value) for value in (1, 1.5, 10**300, -math.inf, math.inf, math.nan)] == [
        "1", "1.5", str(10**300), "-Inf", "+Inf", "NaN",
    ]  # fmt: skip
