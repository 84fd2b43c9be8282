"""Makes producers and consumers from options and client properties. An option has precedence over a property, and a property over a
default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.base.types import READ_COMMITTED, READ_UNCOMMITTED
from ottla.cli.command import UsageError
from ottla.cli.records.record_input import is_on
from ottla.client.blocking.cluster import Cluster
from ottla.wire.compression import CODEC_NAMES

if TYPE_CHECKING:
    from ottla.client.blocking.consumer import Consumer
    from ottla.client.blocking.producer import Delivery, Producer
    from ottla.client.blocking.share_consumer import Acknowledged, ShareConsumer

MAX_WAIT_MS = 500
SESSION_TIMEOUT_MS = 45_000
LIBRDKAFKA_DELIVERY_TIMEOUT = "message.timeout.ms"
"""librdkafka's name of `delivery.timeout.ms`, which scripts for kcat use."""


def number(properties: Mapping[str, str], name: str, default: int) -> int:
    """Returns the value of a numeric property, `default` without it. Raises UsageError if it is not a whole number."""
    text = properties.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name}={text} is not a whole number") from None


def make_producer(
    cluster: Cluster,
    properties: Mapping[str, str],
    *,
    acks: str | None = None,
    codec: str | None = None,
    batch_bytes: int | None = None,
    linger_ms: int | None = None,
    transactional_id: str | None = None,
    on_delivery: Callable[[Delivery], object] | None = None,
) -> Producer:
    """Returns a producer. Properties replace arguments that are None. Raises UsageError for an invalid value."""
    from ottla.client.blocking import producer as producing

    acks = acks or properties.get("acks") or properties.get("request.required.acks") or "all"
    if acks not in ("-1", "0", "1", "all"):
        raise UsageError(f"acks {acks!r} is none of -1, 0, 1, all")
    codec = codec or properties.get("compression.type") or properties.get("compression.codec") or "none"
    if codec not in CODEC_NAMES:
        raise UsageError(f"compression {codec!r} is none of {', '.join(CODEC_NAMES)}")
    required = producing.ACKS_ALL if acks == "all" else int(acks)
    transactional_id = transactional_id or properties.get("transactional.id")
    if transactional_id is not None and required != producing.ACKS_ALL:
        raise UsageError("a transaction needs acks all")
    if linger_ms is None:
        linger_ms = number(properties, "linger.ms", 5)
    return producing.Producer(
        cluster,
        acks=required,
        codec=codec,
        is_idempotent=is_on(properties, "enable.idempotence", True),
        transactional_id=transactional_id,
        transaction_timeout_ms=number(properties, "transaction.timeout.ms", 60_000),
        batch_bytes=batch_bytes or number(properties, "batch.size", producing.BATCH_BYTES),
        linger_s=linger_ms / 1000,
        in_flight_max=number(properties, "max.in.flight.requests.per.connection", producing.IN_FLIGHT_MAX),
        delivery_timeout_s=number(properties, "delivery.timeout.ms", number(properties, LIBRDKAFKA_DELIVERY_TIMEOUT, 120_000)) / 1000,
        on_delivery=on_delivery,
    )


def make_consumer(
    cluster: Cluster,
    properties: Mapping[str, str],
    *,
    group_id: str | None = None,
    isolation_level: str | None = None,
    auto_offset_reset: str = "latest",
    partition_bytes_max: int | None = None,
    max_wait_ms: int = MAX_WAIT_MS,
) -> Consumer:
    """Returns a consumer. Raises UsageError for an invalid value. `group_id` and `isolation_level` win over properties; a property wins
    over the other arguments, which are the command's defaults."""
    from ottla.client.blocking import consumer as consuming

    isolation = isolation_level or properties.get("isolation.level", "read_uncommitted")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise UsageError(f"isolation.level={isolation} is neither read_committed nor read_uncommitted")
    reset = properties.get("auto.offset.reset", auto_offset_reset)
    if reset not in ("earliest", "latest", "none"):
        raise UsageError(f"auto.offset.reset={reset} is none of earliest, latest, none")
    return consuming.Consumer(
        cluster,
        group_id=group_id or properties.get("group.id"),
        isolation_level=READ_COMMITTED if isolation == "read_committed" else READ_UNCOMMITTED,
        auto_offset_reset=reset,
        is_auto_commit=is_on(properties, "enable.auto.commit", True),
        partition_bytes_max=number(properties, "max.partition.fetch.bytes", partition_bytes_max or consuming.PARTITION_BYTES_MAX),
        min_bytes=number(properties, "fetch.min.bytes", 1),
        max_wait_ms=number(properties, "fetch.max.wait.ms", max_wait_ms),
        session_timeout_ms=number(properties, "session.timeout.ms", SESSION_TIMEOUT_MS),
        instance_id=properties.get("group.instance.id"),
    )


def make_share_consumer(
    cluster: Cluster,
    properties: Mapping[str, str],
    group_id: str,
    *,
    is_explicit: bool = False,
    has_record_limit: bool = False,
    max_wait_ms: int = MAX_WAIT_MS,
    on_acknowledged: Acknowledged | None = None,
) -> ShareConsumer:
    """Returns a consumer of a share group, with isolation and offset reset as set in the group. Raises UsageError for an invalid value. The
    properties `share.acquire.mode` and `fetch.max.wait.ms` win over `has_record_limit` and `max_wait_ms`."""
    from ottla.client.blocking import share_consumer as sharing
    from ottla.client.core.share_session import BATCH_OPTIMIZED, RECORD_LIMIT

    mode = properties.get("share.acquire.mode", "record_limit" if has_record_limit else "batch_optimized").lower()
    if mode not in ("batch_optimized", "record_limit"):
        raise UsageError(f"share.acquire.mode={mode} is neither batch_optimized nor record_limit")
    return sharing.ShareConsumer(
        cluster,
        group_id,
        is_explicit=is_explicit,
        records_max=max(1, number(properties, "max.poll.records", sharing.MAX_POLL_RECORDS)),
        acquire_mode=RECORD_LIMIT if mode == "record_limit" else BATCH_OPTIMIZED,
        min_bytes=number(properties, "fetch.min.bytes", 1),
        max_bytes=number(properties, "fetch.max.bytes", sharing.FETCH_BYTES_MAX),
        max_wait_ms=number(properties, "fetch.max.wait.ms", max_wait_ms),
        rack=properties.get("client.rack") or None,
        on_acknowledged=on_acknowledged,
    )
