"""Settings of identity, listeners, connections and requests. Each limit has its unit in the name or the description."""

from __future__ import annotations

from ottla.base.settings.setting import (
    INT_MAX,
    Between,
    OneOf,
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


class NetworkSettings:
    """Identity, listeners and limits of connections."""

    broker_id = integer("broker.id", -1, "Number of this broker in the cluster; -1 takes node.id, and without that 0.", valid=at_least(-1))
    node_id = integer("node.id", -1, "Newer name of broker.id.", valid=at_least(-1))
    broker_rack = maybe_string(
        "broker.rack", "Rack or zone of this broker: replicas are spread over racks, consumers may fetch from their own."
    )
    listeners = words(
        "listeners",
        ("PLAINTEXT://127.0.0.1:9092",),
        "Addresses to listen on, NAME://host:port separated by commas. An empty host means every address, port 0 any free port.",
    )
    advertised_listeners = words("advertised.listeners", (), "Addresses that metadata gives to clients; empty means those of listeners.")
    listener_security_protocol_map = words(
        "listener.security.protocol.map",
        ("SASL_SSL:SASL_SSL", "PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT"),
        "Security protocol of each listener name, NAME:PROTOCOL separated by commas.",
    )
    controller_listener_names = words(
        "controller.listener.names", (), "Listeners of a KRaft controller: they are not opened, there is no such controller here."
    )
    inter_broker_listener_name = maybe_string("inter.broker.listener.name", "Listener by which brokers speak to each other.")
    security_inter_broker_protocol = string(
        "security.inter.broker.protocol", "PLAINTEXT", "Protocol between brokers when no listener is named for it.", valid=OneOf(*PROTOCOLS)
    )
    socket_send_buffer_bytes = integer(
        "socket.send.buffer.bytes", 102400, "Send buffer of a client's socket, where it is set; else, and with -1, the system's."
    )
    socket_receive_buffer_bytes = integer(
        "socket.receive.buffer.bytes", 102400, "Receive buffer of a client's socket, where it is set; else, and with -1, the system's."
    )
    socket_request_max_bytes = integer(
        "socket.request.max.bytes", 104857600, "Largest request that is read from a client.", valid=at_least(1)
    )
    socket_listen_backlog_size = integer(
        "socket.listen.backlog.size", 50, "Connections that may wait at a listener before they are accepted.", valid=at_least(1)
    )
    max_connections = integer(
        "max.connections", INT_MAX, "Connections open at a time, of the broker or of one listener.", valid=at_least(0), update=WIDE
    )
    max_connections_per_ip = integer(
        "max.connections.per.ip", INT_MAX, "Connections open at a time from one address.", valid=at_least(0), update=WIDE
    )
    max_connections_per_ip_overrides = string(
        "max.connections.per.ip.overrides", "", "Exceptions to max.connections.per.ip, host:number separated by commas.", update=WIDE
    )
    max_connection_creation_rate = integer(
        "max.connection.creation.rate", INT_MAX, "Connections a second that are accepted, by the broker or by one listener; more wait.",
        valid=at_least(1), update=WIDE,
    )  # fmt: skip
    connections_max_idle_ms = long("connections.max.idle.ms", 600000, "A connection without a request for this long is closed.")
    queued_max_request_bytes = long(
        "queued.max.request.bytes", -1, "Bytes of requests held in memory before reading stops; -1 is no limit of its own."
    )
    fetch_max_bytes = integer("fetch.max.bytes", 57671680, "Most bytes of records in one fetch answer.", valid=at_least(1024))
    max_incremental_fetch_session_cache_slots = integer(
        "max.incremental.fetch.session.cache.slots", 1000, "Fetch sessions kept at a time.", valid=at_least(0)
    )
    max_request_partition_size_limit = integer(
        "max.request.partition.size.limit", 2000, "Most partitions in one DescribeTopicPartitions answer.", valid=at_least(1)
    )
    request_timeout_ms = integer("request.timeout.ms", 30000, "How long this broker waits for the answer of another one.")
    quota_window_num = integer("quota.window.num", 11, "Samples kept to measure a quota.", valid=at_least(1))
    quota_window_size_seconds = integer("quota.window.size.seconds", 1, "Length of one sample of a quota.", valid=at_least(1))
    controller_quota_window_num = integer(
        "controller.quota.window.num", 11, "Samples for which changes of the cluster may be saved up.", valid=at_least(1)
    )
    controller_quota_window_size_seconds = integer(
        "controller.quota.window.size.seconds", 1, "Length of one sample of changes of the cluster.", valid=at_least(1)
    )

    ottla_cluster_id = maybe_string(
        "ottla.cluster.id", "Cluster id of a new data directory; not set: a random one. CLUSTER_ID sets it too."
    )
    ottla_request_unauthenticated_max_bytes = integer(
        "ottla.request.unauthenticated.max.bytes", 524288, "Largest request read before a client has authenticated.", valid=at_least(64)
    )
    ottla_connection_requests_max = integer(
        "ottla.connection.requests.max", 1000, "Requests in flight on one connection before reading from it stops.", valid=at_least(1)
    )
    ottla_connection_memory_max_bytes = long(
        "ottla.connection.memory.max.bytes", 8388608, "Bytes of unsent answers and waiting requests of a connection before reading stops.",
        valid=at_least(65536),
    )  # fmt: skip
    ottla_response_max_bytes = long(
        "ottla.response.max.bytes",
        67108864,
        "Bytes of an answer about many things, fetched records aside; what is named beyond is refused with POLICY_VIOLATION.",
        valid=at_least(65536),
    )
    ottla_memory_max_bytes = long(
        "ottla.memory.max.bytes", 1073741824,
        "Bytes of requests and answers in flight on all connections; parts of it bound what else clients make a broker keep (limits.md).",
        valid=at_least(1048576),
    )  # fmt: skip
    ottla_shutdown_timeout_ms = integer(
        "ottla.shutdown.timeout.ms", 30000, "How long a clean stop waits for answers in flight.", valid=at_least(0)
    )
    ottla_open_files_max = integer(
        "ottla.open.files.max", 0, "Log files kept open at a time; 0: a quarter of what the process may open.", valid=at_least(0)
    )
    ottla_metrics_listen = maybe_string("ottla.metrics.listen", "host:port of metrics and health over HTTP; not set: off.")
    ottla_metrics_credentials = maybe_password(
        "ottla.metrics.credentials", "user:password for metrics over HTTP; this or a token is needed where the port is not on loopback."
    )
    ottla_metrics_token_file = maybe_string(
        "ottla.metrics.token.file", "File with a bearer token for metrics over HTTP, beside or instead of the password."
    )
    ottla_metrics_ssl_certificate = maybe_string(
        "ottla.metrics.ssl.certificate", "PEM file with the certificate chain of the HTTP port, which then speaks TLS only; not set: off."
    )
    ottla_metrics_ssl_key = maybe_string(
        "ottla.metrics.ssl.key", "PEM file with the key of that certificate; not set: it stands in the same file."
    )
    ottla_metrics_hosts = words(
        "ottla.metrics.hosts", (), "Names by which the HTTP port may be asked, besides its addresses; empty: any, on loopback localhost."
    )
    ottla_metrics_probes_open = boolean("ottla.metrics.probes.open", True, "Probes over HTTP need neither password nor token.")
    ottla_metrics_aliases = words(
        "ottla.metrics.aliases", (), "Further dialects of metric names.", valid=SomeOf("confluent", "strimzi-reporter", may_be_empty=True)
    )
    ottla_umask = string(
        "ottla.umask", "077", "Permissions that new files and directories of the broker do not have, in octal: 027 lets the group read.",
        valid=OneOf("077", "027", "007", "022", "002"),
    )  # fmt: skip
    ottla_log_format = string(
        "ottla.log.format", "auto", "Form of the broker's own log: text on a terminal and JSON elsewhere, or always one of them.",
        valid=OneOf("auto", "text", "json"),
    )  # fmt: skip
    ottla_log_level = string(
        "ottla.log.level", "info", "How much the broker's own log says.", valid=OneOf("debug", "info", "warning", "error", any_case=True)
    )
    ottla_tick_interval_ms = integer(
        "ottla.tick.interval.ms", 500, "How often the broker looks after what has no event of its own.", valid=Between(10, 60000)
    )
    ottla_advertise_level = maybe_string(
        "ottla.advertise.level",
        "Kafka release: no API is offered or served in a newer version than it had; not set: the newest.",
        valid=OneOf(*LEVELS),
    )
    auto_create_topics_enable = boolean("auto.create.topics.enable", True, "A topic that a client asks for and that is missing is created.")
