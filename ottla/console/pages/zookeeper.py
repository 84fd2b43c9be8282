"""Pages that show the nodes of the cluster's ZooKeeper, one level at a time. Nodes with secrets are listed, but their content is not shown.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ottla.base.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.base.errors import ApiError, OttlaError
from ottla.client.core import acl_admin, admin
from ottla.console.model import Code, Link, Note, Page, PageError, Table, columns, href, moment, size
from ottla.console.visit import Visit, page

if TYPE_CHECKING:
    from ottla.adapters.zookeeper_tools import StoredNode

CONNECT, OURS = "zookeeper.connect", "ottla.metrics.listen"
"""Settings of a broker: where ZooKeeper is, and one that only Ottla has."""
CONNECT_S = 5.0
CHILDREN_MAX = 500
"""Children of a node that are asked for their state. Others are only named."""
VALUE_LETTERS_MAX = 20_000
CONTROLLER = (("Controller", "/controller"), ("Controller epoch", "/controller_epoch"))
"""Facts of the root, and the nodes that have them. The epoch is the number of elections of a controller."""
TITLES = columns(node="Node", kind="Kind", children="Children", bytes="Size", version="Version", modified="Modified")


@page("/zookeeper", "A node of ZooKeeper: its value and its children", name="ZooKeeper", section="Cluster", query=("path",))
def zookeeper(visit: Visit) -> Page:
    path = "/" + visit.query.get("path", "/").strip("/")
    connect, reason = _address(visit)
    if reason:
        return Page("ZooKeeper", notes=[Note(f"ZooKeeper is not shown: {reason}")])
    allowed = acl_admin.allowed_operations(visit.cluster, ResourceType.CLUSTER, CLUSTER_NAME)
    if not {AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS} <= {*(allowed or ())}:
        raise PageError("ZooKeeper is shown to users that may Describe and DescribeConfigs on the cluster.", 403)
    try:
        from ottla.adapters.zookeeper_tools import ZooKeeperTools

        with ZooKeeperTools(connect, timeout_s=CONNECT_S) as tools:
            node = tools.node(path)
            if node is None:
                raise PageError(f"ZooKeeper has no node {path[:200]}.", 404)
            below = path.rstrip("/")
            found = {name: tools.node(f"{below}/{name}") for name in node.children[:CHILDREN_MAX]}
            elected = [(name, tools.node(at)) for name, at in CONTROLLER] if path == "/" else []
    except PageError:
        raise
    except OttlaError as error:
        return Page("ZooKeeper", notes=[Note(f"ZooKeeper is not shown: {error}.", "warn")])
    rows = [_row(f"{below}/{name}", name, found.get(name)) for name in node.children]
    facts = [
        ("Servers", connect), ("Kind", _kind(node)), ("Version", node.version), ("Modified", moment(node.modified_ms)),
        ("Size", size(node.size)), ("Value", Code(_value(node))), *((name, _elected(one)) for name, one in elected),
    ]  # fmt: skip
    names = path.strip("/").split("/") if path != "/" else []
    trail = [Link("ZooKeeper", "/zookeeper"), *(
        Link(name, href("zookeeper", path="/" + "/".join(names[: at + 1]))) for at, name in enumerate(names[:-1])
    )]  # fmt: skip
    return Page(path, facts, [Table("nodes", "Children", TITLES, rows, "The node has no children.")], trail=trail if names else ())


def _address(visit: Visit) -> tuple[str, str]:
    """Returns the address of ZooKeeper, or an empty text and the reason why there is none to show. Raises `ApiError`."""
    broker = str(min(one.node_id for one in visit.view().metadata.brokers))
    found = admin.describe_configs(visit.cluster, admin.BROKER_RESOURCE, [broker], keys=[CONNECT, OURS])[broker]
    if isinstance(found, ApiError):
        raise found
    values = {one.name: one.value or "" for one in found}
    if OURS not in values:
        return "", "these are not Ottla's brokers, and Kafka's protocol does not carry it."
    if not values.get(CONNECT):
        return "", "a single broker has none. Its metadata is in a file of its data directory."
    return values[CONNECT], ""


def _row(path: str, name: str, node: StoredNode | None) -> dict[str, object]:
    if node is None:
        return {"node": Link(name, href("zookeeper", path=path))}
    return {
        "node": Link(name, href("zookeeper", path=path)), "kind": _kind(node), "children": len(node.children), "bytes": node.size,
        "version": node.version, "modified": moment(node.modified_ms),
    }  # fmt: skip


def _elected(node: StoredNode | None) -> str:
    """Returns the broker id in `/controller`, or the number in `/controller_epoch`; `none` without the node."""
    if node is None or node.data is None:
        return "none"
    try:
        found = json.loads(node.data)
        return str(found["brokerid"] if isinstance(found, dict) else found)
    except (ValueError, KeyError):
        return _value(node)


def _kind(node: StoredNode) -> str:
    return "ephemeral: ends with its session" if node.is_ephemeral else "persistent"


def _value(node: StoredNode) -> str:
    """Returns the value as text, JSON with indents. Bytes that are no text are shown as hex."""
    if node.data is None:
        return "not shown: it may have secrets, or ZooKeeper does not let this console read it"
    try:
        text = node.data.decode()
    except UnicodeDecodeError:
        return node.data.hex(" ")[:VALUE_LETTERS_MAX]
    try:
        return json.dumps(json.loads(text), indent=1)[:VALUE_LETTERS_MAX] if text.startswith(("{", "[")) else text[:VALUE_LETTERS_MAX]
    except ValueError:
        return text[:VALUE_LETTERS_MAX]
