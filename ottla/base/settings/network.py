"""Settings of identity, listeners, connections and requests. Each limit has its unit in the name or the description."""

from __future__ import annotations

from functools import lru_cache

from ottla.base.settings.setting import (
    INT_MAX,
    Between,
    OneOf,
    SettingError,
    SomeOf,
    UpdateMode,
    at_least,
    boolean,
    integer,
    long,
    maybe_password,
    maybe_string,
    string,
    words,
)

WIDE = UpdateMode.CLUSTER_WIDE
LEVELS = ("3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "4.0", "4.1", "4.2", "4.3", "4.4")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@lru_cache(maxsize=1)
def per_host(overrides: str) -> dict[str, int]:
    """Parses `host:number` separated by commas; an IPv6 address may be in brackets. Raises `SettingError`."""
    found = {}
    for item in filter(None, map(str.strip, overrides.split(","))):
        host, _, number = item.rpartition(":")
        if not host or not number.strip().isdecimal():
            raise SettingError(f"Expected host:number separated by commas but found {item}")
        found[host.strip("[] ")] = int(number)
    return found


def _why_not_per_host(value: str) -> str:
    try:
        per_host(value)
    except SettingError as error:
        return str(error)
    return ""


class NetworkSettings:
    """Identity, listeners and limits of connections."""

    broker_id = integer("broker.id", -1, "Number of this broker, unique in its cluster; -1: node.id, else 0.", valid=at_least(-1))
    node_id = integer("node.id", -1, "Another name of broker.id.", valid=at_least(-1))
    broker_rack = maybe_string(
        "broker.rack", "Rack or zone of this broker. Replicas are spread over racks, and consumers may fetch from their own rack."
    )
    listeners = words(
        "listeners",
        ("PLAINTEXT://127.0.0.1:9092",),
        "Addresses to listen on, NAME://host:port separated by commas. An empty host means every address, port 0 a free port.",
    )
    advertised_listeners = words("advertised.listeners", (), "Addresses that clients get from metadata; empty: the addresses of listeners.")
    listener_security_protocol_map = words(
        "listener.security.protocol.map",
        ("SASL_SSL:SASL_SSL", "PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT"),
        "Security protocol of each listener name, NAME:PROTOCOL separated by commas.",
    )
    controller_listener_names = words(
        "controller.listener.names", (), "Listeners of a KRaft controller. They are not opened, because there is no such controller here."
    )
    inter_broker_listener_name = maybe_string("inter.broker.listener.name", "Listener for connections between brokers.")
    security_inter_broker_protocol = string(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        "Without inter.broker.listener.name, the first listener with this protocol is for connections between brokers.",
        valid=OneOf(*PROTOCOLS),
    )
    socket_send_buffer_bytes = integer(
        "socket.send.buffer.bytes",
        102400,
        "Send buffer of a client's socket. The system decides if this is -1, or if only the default applies.",
    )
    socket_receive_buffer_bytes = integer(
        "socket.receive.buffer.bytes",
        102400,
        "Receive buffer of a client's socket. The system decides if this is -1, or if only the default applies.",
    )
    socket_request_max_bytes = integer("socket.request.max.bytes", 104857600, "Maximum size of a request.", valid=at_least(1))
    socket_listen_backlog_size = integer(
        "socket.listen.backlog.size",
        50,
        "Maximum number of connections that wait to be accepted. A value below 128 has the effect of 128.",
        valid=at_least(1),
    )
    max_connections = integer(
        "max.connections", INT_MAX, "Maximum open connections, of the broker or of one listener.", valid=at_least(0), update=WIDE
    )
    max_connections_per_ip = integer(
        "max.connections.per.ip", INT_MAX, "Maximum open connections from one address.", valid=at_least(0), update=WIDE
    )
    max_connections_per_ip_overrides = string(
        "max.connections.per.ip.overrides", "", "Exceptions to max.connections.per.ip, host:number separated by commas.",
        valid=_why_not_per_host, update=WIDE,
    )  # fmt: skip
    max_connection_creation_rate = integer(
        "max.connection.creation.rate",
        INT_MAX,
        "Maximum new connections per second, of the broker or of one listener; further ones are delayed.",
        valid=at_least(1),
        update=WIDE,
    )
    connections_max_idle_ms = long("connections.max.idle.ms", 600000, "A connection that is idle for longer is closed; negative: never.")
    queued_max_request_bytes = long(
        "queued.max.request.bytes",
        -1,
        "Maximum bytes of requests that are being received, at most half of ottla.memory.max.bytes; -1: that half.",
    )
    fetch_max_bytes = integer(
        "fetch.max.bytes",
        57671680,
        "Maximum bytes of records in a fetch response. A larger first batch is returned whole.",
        valid=at_least(1024),
    )
    max_incremental_fetch_session_cache_slots = integer(
        "max.incremental.fetch.session.cache.slots", 1000, "Maximum number of fetch sessions.", valid=at_least(0)
    )
    max_request_partition_size_limit = integer(
        "max.request.partition.size.limit", 2000, "Maximum partitions in a DescribeTopicPartitions response.", valid=at_least(1)
    )
    telemetry_max_bytes = integer(
        "telemetry.max.bytes", 1048576, "Maximum bytes of metrics in a push of a client, before and after decompression.", valid=at_least(1)
    )
    request_timeout_ms = integer("request.timeout.ms", 30000, "Time that this broker waits for another broker's response.")
    quota_window_num = integer("quota.window.num", 11, "Samples in the window of a quota.", valid=at_least(1))
    quota_window_size_seconds = integer("quota.window.size.seconds", 1, "Length of one sample of a quota.", valid=at_least(1))
    controller_quota_window_num = integer(
        "controller.quota.window.num",
        11,
        "Samples in the window of the quota controller_mutation_rate: a client may use the quota of the whole window at once.",
        valid=at_least(1),
    )
    controller_quota_window_size_seconds = integer(
        "controller.quota.window.size.seconds", 1, "Length of one sample of the quota controller_mutation_rate.", valid=at_least(1)
    )

    ottla_cluster_id = maybe_string(
        "ottla.cluster.id", "Cluster id of a new data directory; not set: a random one. CLUSTER_ID sets it too."
    )
    ottla_request_unauthenticated_max_bytes = integer(
        "ottla.request.unauthenticated.max.bytes", 524288, "Like sasl.server.max.receive.size; the smaller one applies.", valid=at_least(64)
    )
    ottla_connection_requests_max = integer(
        "ottla.connection.requests.max",
        1000,
        "Maximum requests in flight on a connection. Above it, the broker stops reading from the connection.",
        valid=at_least(1),
    )
    ottla_connection_memory_max_bytes = long(
        "ottla.connection.memory.max.bytes",
        8388608,
        "Maximum bytes of unsent responses and waiting requests of a connection. Above it, the broker stops reading from the connection.",
        valid=at_least(65536),
    )
    ottla_response_max_bytes = long(
        "ottla.response.max.bytes",
        67108864,
        "Maximum size of the response to a request with many elements, except fetched records. Further elements are "
        "refused with POLICY_VIOLATION.",
        valid=at_least(65536),
    )
    ottla_memory_max_bytes = long(
        "ottla.memory.max.bytes", 1073741824,
        "Maximum bytes of requests and responses in flight on all connections. Other limits on memory are parts of it "
        "(limits.md).",
        valid=at_least(1048576),
    )  # fmt: skip
    ottla_shutdown_timeout_ms = integer(
        "ottla.shutdown.timeout.ms",
        30000,
        "Time that a clean stop waits for responses in flight, syncs and logs that are being opened.",
        valid=at_least(0),
    )
    ottla_open_files_max = integer(
        "ottla.open.files.max",
        0,
        "Maximum number of open log files, at most a third of the process's limit on descriptors; 0: a quarter of that limit.",
        valid=at_least(0),
    )
    ottla_cores = integer(
        "ottla.cores",
        1,
        "Number of brokers that `ottla start` runs as one service. Each uses one core.",
        valid=Between(1, 256),
    )
    ottla_metrics_listen = maybe_string(
        "ottla.metrics.listen", "Address of metrics and health checks over HTTP, host:port; not set: they are off, except with a console."
    )
    ottla_console_listen = maybe_string(
        "ottla.console.listen",
        "Address of a console that the broker starts beside itself, host:port; not set: none, except with `ottla dev`.",
    )
    ottla_console_registry = maybe_password(
        "ottla.console.registry",
        "URL of a schema registry for that console, http://HOST:PORT or https://USER:PASSWORD@HOST:PORT; not set: none.",
    )
    ottla_metrics_credentials = maybe_password(
        "ottla.metrics.credentials",
        "user:password for metrics over HTTP. On an address that is not loopback, this or ottla.metrics.token.file is required.",
    )
    ottla_metrics_token_file = maybe_string(
        "ottla.metrics.token.file", "File with a bearer token for metrics over HTTP, besides or instead of the password."
    )
    ottla_metrics_ssl_certificate = maybe_string(
        "ottla.metrics.ssl.certificate",
        "PEM file with the certificate chain of the HTTP port, which then accepts only TLS; not set: no TLS.",
    )
    ottla_metrics_ssl_key = maybe_string(
        "ottla.metrics.ssl.key", "PEM file with the private key of the HTTP port; not set: the key is in ottla.metrics.ssl.certificate."
    )
    ottla_metrics_hosts = words(
        "ottla.metrics.hosts",
        (),
        "Host names that requests to the HTTP port may use besides IP addresses. Empty: any name; on a loopback address only localhost.",
    )
    ottla_metrics_probes_open = boolean("ottla.metrics.probes.open", True, "Whether health checks over HTTP need no password or token.")
    ottla_metrics_aliases = words(
        "ottla.metrics.aliases",
        (),
        "Further dialects of metric names to export.",
        valid=SomeOf("confluent", "strimzi-reporter", may_be_empty=True),
    )
    ottla_umask = string(
        "ottla.umask", "077", "Permissions that new files and directories do not get, in octal; 027 lets the group read them.",
        valid=OneOf("077", "027", "007", "022", "002"),
    )  # fmt: skip
    ottla_log_format = string(
        "ottla.log.format", "auto", "Format of the broker's log; auto: text on a terminal, else JSON.",
        valid=OneOf("auto", "text", "json"),
    )  # fmt: skip
    ottla_log_level = string(
        "ottla.log.level",
        "info",
        "Lowest level of lines in the broker's log.",
        valid=OneOf("debug", "info", "warning", "error", any_case=True),
    )
    ottla_tick_interval_ms = integer(
        "ottla.tick.interval.ms",
        500,
        "How often the broker checks for logs to flush, slow requests and clients that do not authenticate.",
        valid=Between(10, 60000),
    )
    ottla_advertise_level = maybe_string(
        "ottla.advertise.level",
        "Kafka release. The broker offers and serves no API version that is newer than this release; not set: no limit.",
        valid=OneOf(*LEVELS),
    )
    auto_create_topics_enable = boolean("auto.create.topics.enable", True, "Whether a client's metadata request creates a missing topic.")
