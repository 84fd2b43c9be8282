"""The table of metrics: name, kind and help text of each family. Dashboards, alert rules and documentation are checked against it.

Names are the names in published Grafana boards and alert rules for Kafka: kafka_exporter's names, and the JMX exporter's names of Kafka's
own metrics. A metric of a part that this broker lacks (queues between threads, for example) is exported with a constant value, because a
board with a hole looks like a broken broker.

Kafka's meters (`BytesInPerSec`) are counters that end in `_total`. `DIALECTS` has two other forms of their names, which are exported on
request.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.metric_text import CLIENT_INFO

COUNTER, GAUGE, SUMMARY, UNTYPED = "counter", "gauge", "summary", "untyped"


class Family(NamedTuple):
    """One metric. `per_second` is Kafka's name of the rate of a counter, for the dialects."""

    name: str
    kind: str
    help: str
    per_second: str = ""

    @property
    def header(self) -> str:
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n"


TRAFFIC = "kafka_server_brokertopicmetrics_"
REQUESTS = "kafka_network_requestmetrics_"
GROUPS = "kafka_coordinator_group_groupmetadatamanager_numgroups"
TRANSACTIONS = "kafka_server_transaction_coordinator_metrics_"
GROUP_COORDINATOR = "kafka_server_group_coordinator_metrics_"
SHARE_COORDINATOR = "kafka_server_share_coordinator_metrics_"
SHARE_GROUPS = "kafka_server_sharegroupmetrics_"
CLIENT_METRICS = "kafka_server_client_metrics_"
SESSION = "kafka_server_sessionexpirelistener_zookeeper"

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        # The cluster, as kafka_exporter names it
        Family("kafka_brokers", GAUGE, "Brokers of the cluster that are alive."),
        Family("kafka_broker_info", GAUGE, "1 for each broker that is alive, with its address."),
        Family("kafka_topic_partitions", GAUGE, "Partitions of a topic."),
        Family("kafka_topic_partition_current_offset", GAUGE, "High watermark: the offset after the last record that readers see."),
        Family("kafka_topic_partition_oldest_offset", GAUGE, "The first offset that is still there."),
        Family("kafka_topic_partition_leader", GAUGE, "Broker that leads the partition, -1 for none."),
        Family("kafka_topic_partition_replicas", GAUGE, "Replicas that the partition should have."),
        Family("kafka_topic_partition_in_sync_replica", GAUGE, "Replicas that are in sync."),
        Family("kafka_topic_partition_leader_is_preferred", GAUGE, "1 if the first of its replicas leads the partition."),
        Family("kafka_topic_partition_under_replicated_partition", GAUGE, "1 if a replica of the partition is out of sync."),
        Family("kafka_consumergroup_current_offset", GAUGE, "Offset that a group has committed."),
        Family(
            "kafka_consumergroup_lag", GAUGE,
            "Records between a group's committed offset and the high watermark, of partitions on its coordinator.",
        ),
        Family("kafka_consumergroup_current_offset_sum", GAUGE, "Offsets that a group has committed, over all partitions of a topic."),
        Family("kafka_consumergroup_lag_sum", GAUGE, "A group's lag over all partitions of a topic, if its coordinator has them all."),
        Family("kafka_consumergroup_members", GAUGE, "Members of a group."),
        # Traffic of each topic, and without a label of all topics
        Family(f"{TRAFFIC}messagesin_total", COUNTER, "Records appended.", "messagesinpersec"),
        Family(f"{TRAFFIC}bytesin_total", COUNTER, "Bytes of record batches appended.", "bytesinpersec"),
        Family(f"{TRAFFIC}bytesout_total", COUNTER, "Bytes of record batches read by consumers.", "bytesoutpersec"),
        Family(f"{TRAFFIC}totalproducerequests_total", COUNTER, "Produce requests, one for each partition.", "totalproducerequestspersec"),
        Family(f"{TRAFFIC}totalfetchrequests_total", COUNTER, "Fetch requests, one for each partition.", "totalfetchrequestspersec"),
        Family(f"{TRAFFIC}failedproducerequests_total", COUNTER, "Produce requests refused.", "failedproducerequestspersec"),
        Family(f"{TRAFFIC}failedfetchrequests_total", COUNTER, "Fetch requests refused.", "failedfetchrequestspersec"),
        Family(f"{TRAFFIC}replicationbytesin_total", COUNTER, "Bytes fetched from leaders.", "replicationbytesinpersec"),
        Family(f"{TRAFFIC}replicationbytesout_total", COUNTER, "Bytes sent to followers.", "replicationbytesoutpersec"),
        # Replicas and controller
        Family("kafka_server_replicamanager_leadercount", GAUGE, "Partitions that this broker leads."),
        Family("kafka_server_replicamanager_partitioncount", GAUGE, "Partitions with a replica on this broker."),
        Family("kafka_server_replicamanager_underreplicatedpartitions", GAUGE, "Partitions led here with a replica out of sync."),
        Family("kafka_server_replicamanager_underminisrpartitioncount", GAUGE, "Partitions led here below min.insync.replicas."),
        Family("kafka_server_replicamanager_isrexpands_total", COUNTER, "In-sync sets that have grown at this leader's request."),
        Family("kafka_server_replicamanager_isrshrinks_total", COUNTER, "In-sync sets that have shrunk at this leader's request."),
        Family("kafka_server_replicafetchermanager_maxlag", GAUGE, "Largest lag of a replica here behind its leader, in records."),
        Family("kafka_controller_kafkacontroller_activecontrollercount", GAUGE, "1 if this broker is the controller."),
        Family("kafka_controller_kafkacontroller_offlinepartitionscount", GAUGE, "Partitions without a leader."),
        Family("kafka_controller_kafkacontroller_globaltopiccount", GAUGE, "Topics of the cluster."),
        Family("kafka_controller_kafkacontroller_globalpartitioncount", GAUGE, "Partitions of the cluster."),
        Family("kafka_controller_kafkacontroller_preferredreplicaimbalancecount", GAUGE, "Partitions not led by their first replica."),
        Family(
            "kafka_controller_controllerstats_uncleanleaderelections_total", COUNTER, "Elections that accepted the loss of records.",
            "uncleanleaderelectionspersec",
        ),
        Family("kafka_cluster_partition_underminisr", GAUGE, "1 if the partition is below min.insync.replicas."),
        Family("kafka_cluster_partition_atminisr", GAUGE, "1 if the partition has exactly min.insync.replicas in sync."),
        # Logs
        Family("kafka_log_log_size", GAUGE, "Bytes of a partition's segments."),
        Family("kafka_log_log_logstartoffset", GAUGE, "First offset of a partition's log."),
        Family("kafka_log_log_logendoffset", GAUGE, "Offset after the last record of a partition's log."),
        Family("kafka_log_logmanager_offlinelogdirectorycount", GAUGE, "Log directories that have failed."),
        Family("ottla_log_directory_free_bytes", GAUGE, "Usable bytes that are free on the disk of a log directory."),
        Family("ottla_log_directory_size_bytes", GAUGE, "Size of the disk of a log directory."),
        Family("ottla_damage_found_total", COUNTER, "Damaged places found in logs that are open."),
        Family("ottla_damage_repaired_total", COUNTER, "Damaged places repaired with the records of another replica."),
        Family("ottla_damage_unrepaired", GAUGE, "Damaged places that are not repaired; reads of them are refused."),
        Family("ottla_scrub_batches_total", COUNTER, "Record batches in logs whose CRCs were checked, by the scrub or because of a doubt."),
        # Requests
        Family(f"{REQUESTS}requests_total", COUNTER, "Requests executed.", "requestspersec"),
        Family(f"{REQUESTS}totaltimems", SUMMARY, "From the request to its answer."),
        Family(f"{REQUESTS}localtimems", SUMMARY, "Work on the request itself."),
        Family(f"{REQUESTS}remotetimems", SUMMARY, "Waiting for replicas, for the disk or for records."),
        Family(f"{REQUESTS}requestqueuetimems", SUMMARY, "Always 0: requests run as they are read, there is no queue before them."),
        Family(f"{REQUESTS}responsequeuetimems", SUMMARY, "Always 0: answers are sent as they are made, there is no queue before that."),
        Family(f"{REQUESTS}responsesendtimems", SUMMARY, "Always 0: sending is part of the work on the request."),
        Family("kafka_network_requestchannel_requestqueuesize", GAUGE, "Always 0: there is no queue of requests."),
        Family("kafka_network_socketserver_networkprocessoravgidle_percent", GAUGE, "Share of time, 0 to 1, that the event loop was idle."),
        Family(
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", GAUGE,
            "Share of time, 0 to 1, in which no request was executed.",
        ),
        Family("kafka_server_socket_server_metrics_connection_count", GAUGE, "Open connections of clients."),
        Family("ottla_tls_certificate_not_after_seconds", GAUGE, "When the certificate of a TLS listener ends, in seconds since 1970."),
        # Quotas: of users and client ids that have one
        Family("kafka_server_produce_throttle_time", GAUGE, "Average throttle time of producers over their byte rate, in milliseconds."),
        Family("kafka_server_fetch_throttle_time", GAUGE, "Average throttle time of consumers over their byte rate, in milliseconds."),
        Family("kafka_server_request_throttle_time", GAUGE, "Average throttle time of clients over their request time, in milliseconds."),
        Family(
            "kafka_server_controllermutation_throttle_time", GAUGE,
            "Average throttle time of clients that create and delete too many partitions, in milliseconds.",
        ),
        Family("kafka_server_produce_byte_rate", GAUGE, "Bytes a second of produce requests."),
        Family("kafka_server_fetch_byte_rate", GAUGE, "Bytes a second of records fetched."),
        Family("kafka_server_request_request_time", GAUGE, "Share of the broker's time, in percent."),
        Family("kafka_server_controllermutation_mutation_rate", GAUGE, "Partitions a second created and deleted."),
        # Coordinators and session
        Family(GROUPS, GAUGE, "Groups coordinated here, share groups not counted."),
        Family(f"{GROUPS}stable", GAUGE, "Groups in state Stable."),
        Family(f"{GROUPS}empty", GAUGE, "Groups in state Empty."),
        Family(f"{GROUPS}dead", GAUGE, "Groups in state Dead."),
        Family(f"{GROUPS}preparingrebalance", GAUGE, "Groups in state PreparingRebalance."),
        Family(f"{GROUPS}completingrebalance", GAUGE, "Groups in state CompletingRebalance."),
        Family(f"{GROUP_COORDINATOR}group_count", GAUGE, "Groups coordinated here, of each kind."),
        Family(f"{GROUP_COORDINATOR}share_group_count", GAUGE, "Share groups coordinated here, in each state."),
        Family(f"{SHARE_COORDINATOR}write_total", COUNTER, "Records written about the state of share partitions."),
        Family(f"{SHARE_GROUPS}dead_letter_queue_records_total", COUNTER, "Dead letters of share groups that this broker has copied."),
        Family(
            f"{SHARE_GROUPS}dead_letter_queue_failed_records_total",
            COUNTER,
            "Dead letters that were archived without a copy; the log says why.",
        ),
        Family(f"{TRANSACTIONS}transactional_id_count", GAUGE, "Transactional ids coordinated here."),
        Family(f"{TRANSACTIONS}transaction_timeout_count", GAUGE, "Transactions that are open for longer than their timeout."),
        Family(f"{TRANSACTIONS}active_transaction_total_time_max", GAUGE, "Age of the oldest open transaction, in milliseconds."),
        Family("ottla_transactions_committed_total", COUNTER, "Transactions that this coordinator has committed."),
        Family("ottla_transactions_aborted_total", COUNTER, "Transactions that this coordinator has aborted."),
        Family(f"{SESSION}disconnects_total", COUNTER, "Lost ZooKeeper connections.", "zookeeperdisconnectspersec"),
        Family(f"{SESSION}expires_total", COUNTER, "ZooKeeper sessions expired.", "zookeeperexpirespersec"),
        Family(f"{SESSION}syncconnects_total", COUNTER, "Connections to ZooKeeper after the first.", "zookeepersyncconnectspersec"),
        # Metrics that clients push (KIP-714). The pushed series have names of their own, `kafka_client_...`.
        Family(f"{CLIENT_METRICS}instance_count", GAUGE, "Clients that have asked for their subscription to metrics, or push metrics."),
        Family(f"{CLIENT_METRICS}unknown_subscription_request_total", COUNTER, "Pushes for another subscription than the present one."),
        Family(f"{CLIENT_METRICS}throttle_total", COUNTER, "Requests of clients before their push interval was over."),
        Family(CLIENT_INFO, GAUGE, "1 for each client that pushes metrics, with its software and address."),
        Family("ottla_client_metrics_pushes_total", COUNTER, "Pushes that were taken."),
        Family("ottla_client_metrics_series", GAUGE, "Series in the last pushes of all clients."),
        Family("ottla_client_metrics_dropped_total", COUNTER, "Pushed values for which there was no memory."),
        # The process
        Family("process_cpu_seconds_total", COUNTER, "CPU time of the process."),
        Family("process_start_time_seconds", GAUGE, "When the process started, in seconds since 1970."),
        Family("process_resident_memory_bytes", GAUGE, "Resident memory."),
        Family("process_virtual_memory_bytes", GAUGE, "Virtual memory."),
        Family("process_open_fds", GAUGE, "Open file descriptors."),
        Family("process_max_fds", GAUGE, "File descriptors that may be open."),
        Family("python_gc_objects_collected_total", COUNTER, "Objects that the garbage collector has freed."),
        Family("python_gc_objects_uncollectable_total", COUNTER, "Objects that the garbage collector could not free."),
        Family("python_gc_collections_total", COUNTER, "Runs of the garbage collector."),
        Family("ottla_eventloop_lag_seconds", SUMMARY, "Delay of timers of the event loop, probed ten times a second."),
        Family("ottla_fsync_seconds", SUMMARY, "Rounds of group commit: fsync of all that was appended meanwhile."),
        Family("ottla_stage_bytes", GAUGE, "Bytes that are staged to be attached, as they count towards the quotas."),
        Family("ottla_stage_staged_bytes_total", COUNTER, "Bytes that were staged."),
        Family("ottla_stage_refused_total", COUNTER, "Chunks that were not staged because a quota was full."),
        Family("ottla_stage_expired_bytes_total", COUNTER, "Staged bytes that no transaction took in time."),
        Family("ottla_info", GAUGE, "1, with the version and the cluster."),
    )
}

SERVICE_FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("ottla_cores_broker_up", GAUGE, "With `--cores`: whether the broker serves."),
        Family("ottla_cores_broker_starts_total", COUNTER, "With `--cores`: starts of the broker's process."),
    )
}
"""Metrics of a service of several brokers (`server/cores`), beside the metrics of its brokers."""

DIALECTS = {"confluent": "", "strimzi-reporter": "_total"}
"""The suffix after `bytesinpersec` in each of the dialects of `ottla.metrics.aliases`."""


def alias(family: Family, dialect: str) -> str:
    """Returns the family's name in another dialect, or an empty text if the name is the same."""
    if not family.per_second:
        return ""
    for prefix in (TRAFFIC, REQUESTS, "kafka_controller_controllerstats_", "kafka_server_sessionexpirelistener_"):
        if family.name.startswith(prefix):
            return f"{prefix}{family.per_second}{DIALECTS[dialect]}"
    return ""
