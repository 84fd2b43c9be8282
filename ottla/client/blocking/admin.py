"""Administration of topics, offsets, records, settings and log directories, for code that may block.

Each function is the procedure of the same name in `core/admin.py`, run to its end on a `Cluster`.
"""

from __future__ import annotations

from ottla.client.blocking.cluster import blocking
from ottla.client.core import admin as procedures
from ottla.client.core.admin import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    GROUP_RESOURCE,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    TOPIC_RESOURCE,
    OffsetAt,
    check,
    grouped,
    refusal,
    timeout_ms,
)

__all__ = [
    "BROKER_LOGGER_RESOURCE",
    "BROKER_RESOURCE",
    "CLIENT_METRICS_RESOURCE",
    "EARLIEST",
    "EARLIEST_LOCAL",
    "EARLIEST_PENDING_UPLOAD",
    "GROUP_RESOURCE",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "OffsetAt",
    "TOPIC_RESOURCE",
    "check",
    "grouped",
    "refusal",
    "timeout_ms",
    "ask_controller",
    "create_topic",
    "delete_topics",
    "describe_topics",
    "create_partitions",
    "list_offsets",
    "delete_records",
    "describe_configs",
    "alter_configs",
    "list_config_resources",
    "describe_log_dirs",
    "describe_cluster",
    "unregister_broker",
]

ask_controller = blocking(procedures.ask_controller)
create_topic = blocking(procedures.create_topic)
delete_topics = blocking(procedures.delete_topics)
describe_topics = blocking(procedures.describe_topics)
create_partitions = blocking(procedures.create_partitions)
list_offsets = blocking(procedures.list_offsets)
delete_records = blocking(procedures.delete_records)
describe_configs = blocking(procedures.describe_configs)
alter_configs = blocking(procedures.alter_configs)
list_config_resources = blocking(procedures.list_config_resources)
describe_log_dirs = blocking(procedures.describe_log_dirs)
describe_cluster = blocking(procedures.describe_cluster)
unregister_broker = blocking(procedures.unregister_broker)
