"""The table of settings that the pages of brokers and topics share."""

from __future__ import annotations

from ottla.base.errors import ApiError
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin
from ottla.console.model import Mark, Table, columns

SOURCES = {
    1: "topic", 2: "dynamic, this broker", 3: "dynamic, all brokers", 4: "start of the broker", 5: "default", 6: "broker's logger",
    7: "client metrics", 8: "group",
}  # fmt: skip
TITLES = columns(name="Setting", value="Value", source="Source", changeable="Dynamic", doc="Meaning")


def setting_rows(cluster: Cluster, kind: int, name: str) -> Table:
    """Asks for the settings of a broker or topic, and returns a table: changed settings first. Raises `ApiError`."""
    found = admin.describe_configs(cluster, kind, [name], documentation=True)[name]
    if isinstance(found, ApiError):
        raise found
    rows = [
        {
            "name": one.name,
            "value": Mark("hidden", "ok") if one.is_sensitive else one.value,
            "source": SOURCES.get(one.config_source, str(one.config_source)),
            "changeable": not one.read_only,
            "doc": one.documentation or "",
        }
        for one in sorted(found, key=lambda one: (one.config_source == 5, one.name))
    ]
    return Table("settings", "Settings", TITLES, rows)
