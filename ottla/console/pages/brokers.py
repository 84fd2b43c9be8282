"""Brokers: the list, one broker, its log directories, settings and API versions."""

from __future__ import annotations

from collections import Counter

from ottla.base.errors import ApiError
from ottla.console.model import Link, Mark, Page, PageError, Table, columns, href, size
from ottla.console.pages.settings import change_form, setting_table
from ottla.console.visit import Visit, page
from ottla.wire.apis import API_NAMES


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
        }
        for broker in sorted(view.metadata.brokers, key=lambda broker: broker.node_id)
    ]
    titles = columns(
        broker="Broker", address="Address", rack="Rack", controller="Controller", leaders="Leaders", replicas="Replicas",
        skew="Skew of leaders", disk="Disk",
    )  # fmt: skip
    return Page("Brokers", tables=[Table("brokers", "Brokers", titles, rows)], refresh_s=10)


def _broker(visit: Visit) -> int:
    text = visit.path["broker"]
    known = {broker.node_id for broker in visit.view().metadata.brokers}
    if not text.isdecimal() or int(text) not in known:
        raise PageError(f"There is no broker {text[:40]}.", 404)
    return int(text)


def _tabs(broker: int) -> list[tuple[str, str]]:
    at = ("brokers", str(broker))
    return [("Log directories", href(*at)), ("Settings", href(*at, "settings")), ("API versions", href(*at, "apis"))]


@page("/brokers/{broker}", "A broker's log directories")
def broker(visit: Visit) -> Page:
    number = _broker(visit)
    view = visit.view()
    rows = [
        {
            "path": found.path, "state": Mark(found.error, "bad") if found.error else Mark("online", "ok"), "partitions": len(found.sizes),
            "size": size(sum(found.sizes.values())), "total": size(found.total_bytes), "usable": size(found.usable_bytes),
        }
        for found in view.directories if found.broker == number
    ]  # fmt: skip
    titles = columns(path="Directory", state="State", partitions="Partitions", size="Size of logs", total="Size of disk", usable="Free")
    led = [
        {"partition": f"{name}-{one.partition_index}", "replicas": list(one.replica_nodes), "in_sync": list(one.isr_nodes)}
        for name, topic in sorted(view.topics.items()) for one in topic.partitions if one.leader_id == number
    ]  # fmt: skip
    led_titles = columns(partition="Partition", replicas="Replicas", in_sync="In sync")
    tables = [
        Table("led", "Partitions that it leads", led_titles, led),
        Table("directories", "Log directories", titles, rows, view.disk_note or "Not known."),
    ]
    return Page(f"Broker {number}", tables=tables, tabs=_tabs(number), trail=[Link("Brokers", "/brokers")])


@page("/brokers/{broker}/settings", "A broker's settings with the source of each value")
def settings(visit: Visit) -> Page:
    number = _broker(visit)
    table, form = setting_table(visit, "brokers", str(number)), change_form("brokers", str(number))
    return Page(f"Broker {number}", tables=[table], forms=[form], tabs=_tabs(number), trail=[Link("Brokers", "/brokers")])


@page("/brokers/{broker}/apis", "The API versions that a broker serves")
def apis(visit: Visit) -> Page:
    number = _broker(visit)
    link = visit.cluster.connection(number)
    rows = []
    for key, name in sorted(API_NAMES.items()):
        try:
            rows.append({"api": name, "key": key, "version": link.version_of(key)})
        except ApiError:
            rows.append({"api": name, "key": key, "version": "not served"})
    table = Table("apis", "APIs", columns(api="API", key="Key", version="Highest version that both sides know"), rows)
    return Page(f"Broker {number}", tables=[table], tabs=_tabs(number), trail=[Link("Brokers", "/brokers")])
