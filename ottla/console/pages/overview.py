"""The overview page, the search, and the data of the charts."""

from __future__ import annotations

from ottla.console.broker_ports import STARTED
from ottla.console.model import Link, Mark, Page, Table, columns, group_link, href, number, seconds, size, topic_link
from ottla.console.snapshot import SERIES, View
from ottla.console.visit import PAGES, Visit, page

SNIPPETS = (
    ("confluent-kafka", 'from confluent_kafka import Producer\nproducer = Producer({{"bootstrap.servers": "{address}"}})'),
    ("kafka-python", 'from kafka import KafkaProducer\nproducer = KafkaProducer(bootstrap_servers="{address}")'),
    ("aiokafka", 'from aiokafka import AIOKafkaProducer\nproducer = AIOKafkaProducer(bootstrap_servers="{address}")'),
    ("Java", "bootstrap.servers={address}"),
    ("Spark", 'spark.readStream.format("ottla").option("kafka.bootstrap.servers", "{address}")'),
    ("Command line", "ottla topic list -b {address}"),
)


RATES = (("bytes_in", "Bytes in"), ("bytes_out", "Bytes out"))
LATENCIES = (("produce_p99", "Produce, 99th percentile"), ("fetch_p99", "Fetch, 99th percentile"))


def health(view: View) -> tuple[Mark, list[tuple[str, int]]]:
    """Returns the health of the cluster, and the counts that decide it."""
    look = view.look
    under, at = in_sync_counts(view)
    counts = [
        ("Offline partitions", look.leaderless), ("Under-replicated partitions", look.out_of_sync),
        ("Below min.insync.replicas", under), ("At min.insync.replicas", at),
    ]  # fmt: skip
    if look.leaderless:
        return Mark(f"{look.leaderless} offline", "bad"), counts
    if look.controller < 0:
        return Mark("no controller", "bad"), counts
    if under:
        return Mark(f"{under} refuse acks=all", "bad"), counts
    if look.out_of_sync:
        return Mark(f"{look.out_of_sync} under-replicated", "warn"), counts
    return Mark("healthy", "ok"), counts


def in_sync_counts(view: View) -> tuple[int, int]:
    """Returns two numbers: the partitions that have fewer in-sync replicas than `min.insync.replicas`, and the partitions that have exactly
    as many in-sync replicas, but more replicas. Topics with unknown settings are omitted.
    """
    under = at = 0
    for name, settings in view.settings.items():
        for one in view.topics[name].partitions if name in view.topics else ():
            under += len(one.isr_nodes) < settings.min_in_sync
            at += len(one.isr_nodes) == settings.min_in_sync < len(one.replica_nodes)
    return under, at


@page("/", "Health, counts and rates of the cluster", name="Overview", section="Cluster")
def overview(visit: Visit) -> Page:
    view = visit.view()
    look = view.look
    mark, counts = health(view)
    last = visit.desk.snapshot.history[-1][1]
    topics = [name for name, topic in view.topics.items() if not topic.is_internal]
    facts = [
        ("Health", mark),
        *((name, Mark(str(count), "ok" if not count else "warn")) for name, count in counts),
        ("Brokers", Link(str(look.brokers), "/brokers")),
        ("Topics", Link(str(len(topics)), "/topics")),
        ("Partitions", look.partitions),
        ("Groups", Link(str(look.group_count), "/groups")),
        ("Open transactions", Link(str(len(look.transactions)), "/transactions")),
        ("Messages a second", number(last["messages"], 1)),
        *((title, f"{size(last[name])}/s") for name, title in RATES if last[name] is not None),
        *((title, f"{last[name]:.1f} ms") for name, title in LATENCIES if last[name] is not None),
        ("Controller", look.controller),
        *_of_brokers(view),
    ]
    behind = [
        {"group": group_link(group.name), "state": group.state, "lag": group.lag, "change": group.change}
        for group in look.groups[:10]
        if group.lag
    ]
    busy = [{"topic": topic_link(one.name), "rate": one.rate, "records": one.end} for one in look.topics[:10] if one.rate]
    tables = [
        Table("groups_behind", "Groups with lag", columns(group="Group", state="State", lag="Lag", change="Change a second"), behind,
              "No group is behind."),
        Table("busy_topics", "Topics that are written", columns(topic="Topic", rate="Messages a second", records="End offsets"), busy,
              "No topic was written since the last look."),
    ]  # fmt: skip
    broker = min(visit.desk.snapshot.cluster.metadata.brokers.values(), default=None)
    address = visit.settings.properties.get("bootstrap.servers", "") or str(broker)
    snippets = [(name, text.format(address=address)) for name, text in SNIPPETS]
    extra = {"lists": snippets, "metrics_note": look.note if look.requests is None else ""}
    return Page("Overview", facts, tables, template="overview.html", extra=extra, refresh_s=10)


def _of_brokers(view: View) -> list[tuple[str, str]]:
    """Returns facts from the metrics of brokers: how long the oldest one has been up, and their versions."""
    started = [one.values[STARTED] for one in view.exported.values() if STARTED in one.values]
    versions = sorted({one.version for one in view.exported.values() if one.version})
    up = [("Up for", seconds(max(0.0, view.at_s - min(started))))] if started else []
    return [*up, *([("Version of Ottla", ", ".join(versions))] if versions else [])]


@page("/metrics", "The series of the charts, of the last 180 looks", name="Metrics", section="Cluster")
def metrics(visit: Visit) -> Page:
    view = visit.view()
    points = list(visit.desk.snapshot.history)
    extra = {
        "times": [at for at, _ in points],
        "series": {name: [values[name] for _, values in points] for name in SERIES},
        "metrics_note": view.look.note if view.look.requests is None else "",
    }
    rows = [{"request": one.name, "rate": one.rate, "p99": one.p99_ms} for one in view.look.requests or ()]
    table = Table(
        "requests", "Requests by API", columns(request="API", rate="Requests a second", p99="p99 in ms"), rows,
        view.look.note or "No request was counted yet.",
    )  # fmt: skip
    files = [
        Link("Grafana board", "/metrics/dashboards/ottla.json"),
        Link("Grafana board of pipelines", "/metrics/dashboards/pipelines.json"),
        Link("alert rules", "/metrics/dashboards/alerts.yaml"),
    ]
    return Page("Metrics", [("For Prometheus", files)], [table], template="metrics.html", extra=extra, refresh_s=10)


@page("/search", "Topics, groups, brokers and pages whose name contains a text", query=("q",))
def search(visit: Visit) -> Page:
    view, wanted = visit.view(), visit.query.get("q", "").strip().lower()
    found = [{"kind": "Page", "name": Link(each.name, each.path)} for each in PAGES if each.name and wanted in each.name.lower()]
    found += [{"kind": "Topic", "name": topic_link(name)} for name in sorted(view.topics) if wanted in name.lower()]
    found += [{"kind": "Group", "name": group_link(group.group_id)} for group in view.groups if wanted in group.group_id.lower()]
    found += [
        {"kind": "Broker", "name": Link(f"broker {broker.node_id}", href("brokers", str(broker.node_id)))}
        for broker in view.metadata.brokers
        if wanted in f"broker {broker.node_id} {broker.host}"
    ]
    return Page(f"Search: {wanted}" if wanted else "Search", tables=[Table("found", "Found", columns(kind="Kind", name="Name"), found)])


