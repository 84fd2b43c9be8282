"""The series of a push: names, labels, sums of differences, and the bound in bytes."""

from __future__ import annotations

from ottla.telemetry.otlp import Kind, Point
from ottla.telemetry.reports import FAMILY_BYTES, SERIES_BYTES, Report, family_name, labels_of

MANY = 1 << 20


def report(*points: Point, before: Report | None = None, bytes_max: int = MANY) -> Report:
    made = Report(bytes_max, before)
    for point in points:
        made.add(point)
    made.end()
    return made


def series(of: Report) -> dict[str, float]:
    return {f"{name}{{{labels[1:]}}}": value for name, family in of.families.items() for labels, value in family.series.items()}


def test_names() -> None:
    assert family_name("org.apache.kafka.producer.record.send.total", "counter") == "kafka_client_producer_record_send_total"
    assert family_name("org.apache.kafka.consumer.poll.idle.ratio.avg", "gauge") == "kafka_client_consumer_poll_idle_ratio_avg"
    assert family_name("my-app.requests", "counter") == "kafka_client_my_app_requests_total"
    assert family_name("a\nb{é", "gauge") == "kafka_client_a_b__"


def test_labels() -> None:
    assert labels_of(()) == ""
    assert labels_of((("topic", 'a"b\n'), ("node.id", "1"))) == ',node_id="1",topic="a\\"b\\n"'
    assert labels_of((("client_id", "x"), ("client.instance.id", "x"), ("__name__", "x"), ("2xx", "x"), ("a", "1"), ("a", "2"))) == (
        ',a="2",label_2xx="x",label___name__="x"'
    )


def test_a_report_replaces_the_former_one() -> None:
    former = report(Point("a", Kind.GAUGE, (), 1), Point("b", Kind.COUNTER, (), 2))
    assert series(former) == {"kafka_client_a{}": 1, "kafka_client_b_total{}": 2}
    assert series(report(Point("b", Kind.COUNTER, (), 5), before=former)) == {"kafka_client_b_total{}": 5}


def test_differences_are_added_up() -> None:
    one = report(Point("a", Kind.DELTA, (("t", "x"),), 2), Point("a", Kind.DELTA, (("t", "y"),), 3))
    two = report(Point("a", Kind.DELTA, (("t", "x"),), 4), Point("c", Kind.DELTA, (), 1), before=one)
    assert series(two) == {'kafka_client_a_total{t="x"}': 6, "kafka_client_c_total{}": 1}


def test_a_report_is_bounded_in_bytes() -> None:
    points = [Point(f"m{index}", Kind.GAUGE, (("k", "v" * 100),), index) for index in range(100)]
    made = report(*points, points[0], bytes_max=10_000)
    assert 0 < made.series_count < 100 and made.dropped == 100 - made.series_count
    assert made.bytes <= 10_000 and made.bytes >= made.series_count * (FAMILY_BYTES + SERIES_BYTES)
