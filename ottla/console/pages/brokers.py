"""Pages about brokers: the list, one broker, its log directories, settings and API versions."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ottla.analysis.metrics_text import MetricsRefused
from ottla.base.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.base.errors import ApiError, OttlaError
from ottla.client.core import acl_admin
from ottla.console.broker_ports import SESSION, SESSION_COUNTS, STARTED
from ottla.console.model import Code, Form, Link, Mark, Note, Page, PageError, Table, columns, href, number, seconds, size
from ottla.console.pages.settings import change_form, setting_table
from ottla.console.snapshot import View
from ottla.console.visit import Visit, page
from ottla.wire.apis import API_NAMES

TRAIL = (Link("Brokers", "/brokers"),)
LOG_LINES_MAX = 500

@page("/brokers", "All brokers with leaders, partitions and disk", name="Brokers", section="Cluster")
def brokers(visit: Visit) -> Page:
    view = visit.view()
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for topic in view.topics.values():
        for one in topic.partitions:
            leaders[one.leader_id] += 1
            replicas.update(one.replica_nodes)
    mean = sum(leaders.values()) / max(1, len(view.metadata.brokers))
    disk: Counter[int] = Counter()
    for directory in view.directories:
        disk[directory.broker] += sum(directory.sizes.values())
    rows = [
        {
            "broker": Link(str(broker.node_id), href("brokers", str(broker.node_id))),
            "address": f"{broker.host}:{broker.port}",
            "rack": broker.rack,
            "controller": Mark("controller", "ok") if broker.node_id == view.look.controller else "",
            "leaders": leaders[broker.node_id],
            "replicas": replicas[broker.node_id],
            "skew": f"{100 * (leaders[broker.node_id] - mean) / mean:+.0f} %" if mean else "",
            "disk": size(disk[broker.node_id]),
            "bytes_in": _rate(view, broker.node_id, "bytes_in"),
            "bytes_out": _rate(view, broker.node_id, "bytes_out"),
        }
        for broker in sorted(view.metadata.brokers, key=lambda broker: broker.node_id)
    ]
    titles = columns(
        broker="Broker", address="Address", rack="Rack", controller="Controller", leaders="Leaders", replicas="Replicas",
        skew="Skew of leaders", disk="Disk", bytes_in="Bytes in", bytes_out="Bytes out",
    )  # fmt: skip
    notes = [] if view.exported else [Note(f"Bytes a second are not shown: {view.look.note}")]
    return Page("Brokers", tables=[Table("brokers", "Brokers", titles, rows)], notes=notes, refresh_s=10)


def _rate(view: View, broker: int, name: str) -> str | None:
    """Returns a broker's rate of bytes; None if the rate is not known."""
    rate = view.exported[broker].rates.get(name) if broker in view.exported else None
    return None if rate is None else f"{size(rate)}/s"


def _broker(visit: Visit) -> int:
    text = visit.path["broker"]
    known = {broker.node_id for broker in visit.view().metadata.brokers}
    if not text.isdecimal() or int(text) not in known:
        raise PageError(f"There is no broker {text[:40]}.", 404)
    return int(text)


def _tabs(broker: int) -> list[tuple[str, str]]:
    at = ("brokers", str(broker))
    return [
        ("Log directories", href(*at)), ("Settings", href(*at, "settings")), ("API versions", href(*at, "apis")),
        ("Requests, session", href(*at, "requests")), ("Log", href(*at, "log")),
    ]  # fmt: skip


@page("/brokers/{broker}", "A broker's log directories")
def broker(visit: Visit) -> Page:
    broker_id = _broker(visit)
    view = visit.view()
    rows = [
        {
            "path": found.path, "state": Mark(found.error, "bad") if found.error else Mark("online", "ok"), "partitions": len(found.sizes),
            "size": size(sum(found.sizes.values())), "total": size(found.total_bytes), "usable": size(found.usable_bytes),
        }
        for found in view.directories if found.broker == broker_id
    ]  # fmt: skip
    titles = columns(path="Directory", state="State", partitions="Partitions", size="Size of logs", total="Size of disk", usable="Free")
    led = [
        {"partition": f"{name}-{one.partition_index}", "replicas": list(one.replica_nodes), "in_sync": list(one.isr_nodes)}
        for name, topic in sorted(view.topics.items()) for one in topic.partitions if one.leader_id == broker_id
    ]  # fmt: skip
    led_titles = columns(partition="Partition", replicas="Replicas", in_sync="In sync")
    tables = [
        Table("led", "Partitions that it leads", led_titles, led),
        Table("directories", "Log directories", titles, rows, view.disk_note or "Not known."),
    ]
    hand_over = Form(
        "/cluster/plan", "Hand over its replicas and leaders", "Show the plan", (),
        "Shows where the replicas of this broker would be; nothing is changed yet.", hidden={"way": "drain", "broker": str(broker_id)},
        is_query=True,
    )  # fmt: skip
    lead_no_more = Form(
        "/cluster/plan", "Hand over its leaders, for example before a restart", "Show the plan", (),
        "Shows which other replicas would lead; nothing is changed yet, and no record moves.",
        hidden={"way": "leadership", "broker": str(broker_id)}, is_query=True,
    )  # fmt: skip
    forms = [lead_no_more, hand_over] if len(view.metadata.brokers) > 1 else []
    return Page(f"Broker {broker_id}", tables=tables, forms=forms, tabs=_tabs(broker_id), trail=TRAIL)


@page("/brokers/{broker}/settings", "A broker's settings with the source of each value")
def settings(visit: Visit) -> Page:
    broker_id = _broker(visit)
    table, form = setting_table(visit, "brokers", str(broker_id)), change_form("brokers", str(broker_id))
    return Page(f"Broker {broker_id}", tables=[table], forms=[form], tabs=_tabs(broker_id), trail=TRAIL)


@page("/brokers/{broker}/apis", "The API versions that a broker serves")
def apis(visit: Visit) -> Page:
    broker_id = _broker(visit)
    link = visit.cluster.connection(broker_id)
    served = {one.api_key: f"{one.min_version} to {one.max_version}" for one in link.api_versions.api_keys}
    rows: list[dict[str, Any]] = []
    for key, name in sorted({**dict.fromkeys(served, "unknown to this console"), **API_NAMES}.items()):
        try:
            used: int | str = link.version_of(key) if key in API_NAMES else "none"
        except ApiError:
            used = "none"
        rows.append({"api": name, "key": key, "served": served.get(key, "not served"), "version": used})
    titles = columns(api="API", key="Key", served="Versions of the broker", version="Version that the console uses")
    table = Table("apis", "APIs", titles, rows)
    return Page(f"Broker {broker_id}", tables=[table], tabs=_tabs(broker_id), trail=TRAIL)


@page("/brokers/{broker}/requests", "The requests that a broker has executed, by API, with its rates and its session of ZooKeeper")
def requests(visit: Visit) -> Page:
    broker_id = _broker(visit)
    view = visit.view()
    found = view.exported.get(broker_id)
    if found is None:
        note = Note(f"Requests are not shown: {view.look.note or 'the broker exports no metrics'}")
        return Page(f"Broker {broker_id}", notes=[note], tabs=_tabs(broker_id), trail=TRAIL)
    facts = [
        ("Version of Ottla", found.version), ("Up for", seconds(max(0.0, found.at_s - found.values.get(STARTED, found.at_s)))),
        ("Records in a second", number(found.rates.get("messages_in"), 1)),
        ("Bytes in", _rate(view, broker_id, "bytes_in")), ("Bytes out", _rate(view, broker_id, "bytes_out")),
        *((title, int(found.values.get(f"{SESSION}{name}_total", 0))) for name, title in SESSION_COUNTS),
        ("Session", Link("its node in ZooKeeper", href("zookeeper", path=f"/brokers/ids/{broker_id}"))),
    ]  # fmt: skip
    rows = [{"request": one.name, "rate": one.rate, "p99": one.p99_ms} for one in found.requests]
    titles = columns(request="API", rate="Requests a second", p99="p99 in ms")
    table = Table("requests", "Requests by API", titles, rows, "No request was counted yet.")
    return Page(f"Broker {broker_id}", facts, [table], tabs=_tabs(broker_id), trail=TRAIL, refresh_s=10)


@page("/brokers/{broker}/log", "The last lines that a broker has written to its log")
def log(visit: Visit) -> Page:
    broker_id = _broker(visit)
    allowed = acl_admin.allowed_operations(visit.cluster, ResourceType.CLUSTER, CLUSTER_NAME)
    if AclOperation.DESCRIBE_CONFIGS not in (allowed or ()):
        raise PageError("The log of a broker is shown to users that may DescribeConfigs on the cluster.", 403)
    try:
        lines = visit.desk.snapshot.ports.log(broker_id).splitlines()[-LOG_LINES_MAX:]
    except (MetricsRefused, OttlaError) as error:
        note = Note(f"The log is not shown: {error}")
        return Page(f"Broker {broker_id}", notes=[note], tabs=_tabs(broker_id), trail=TRAIL)
    rows = [{"line": Code(line)} for line in reversed(lines)]
    table = Table("lines", "Log, the newest line first", columns(line="Line"), rows, "The broker has written nothing yet.")
    return Page(f"Broker {broker_id}", tables=[table], tabs=_tabs(broker_id), trail=TRAIL, refresh_s=10)
