"""The names that the broker's metrics can have, and the labels of each."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ottla.server.monitoring.metric_families import FAMILIES, SERVICE_FAMILIES, SUMMARY, alias

TRAFFIC = "messagesin|bytesin|bytesout|totalproducerequests|totalfetchrequests|failedproducerequests|failedfetchrequests"
NUMGROUPS = "|stable|empty|dead|preparingrebalance|completingrebalance"
TIMES = "totaltimems|localtimems|remotetimems|requestqueuetimems|responsequeuetimems|responsesendtimems"

NAMES = f"""
kafka_brokers
kafka_broker_info id,address
kafka_topic_partitions topic
kafka_topic_partition_(current_offset|oldest_offset|leader|replicas|in_sync_replica) topic,partition
kafka_topic_partition_(leader_is_preferred|under_replicated_partition) topic,partition
kafka_consumergroup_(current_offset|lag) consumergroup,topic,partition
kafka_consumergroup_(current_offset_sum|lag_sum) consumergroup,topic
kafka_consumergroup_members consumergroup
kafka_server_brokertopicmetrics_({TRAFFIC})_total topic
kafka_server_brokertopicmetrics_({TRAFFIC})_total
kafka_server_replicamanager_(leadercount|partitioncount|underreplicatedpartitions|underminisrpartitioncount)
kafka_controller_kafkacontroller_(activecontrollercount|offlinepartitionscount|globaltopiccount|globalpartitioncount)
kafka_controller_kafkacontroller_preferredreplicaimbalancecount
kafka_controller_controllerstats_uncleanleaderelections_total
kafka_cluster_partition_(underminisr|atminisr) topic,partition
kafka_server_replicafetchermanager_maxlag clientid
kafka_server_replicamanager_(isrexpands|isrshrinks)_total
kafka_server_brokertopicmetrics_(replicationbytesin|replicationbytesout)_total
kafka_log_log_(size|logstartoffset|logendoffset) topic,partition
kafka_log_logmanager_offlinelogdirectorycount
ottla_log_directory_(free|size)_bytes log_dir
kafka_network_requestmetrics_({TIMES}) request,quantile
kafka_network_requestmetrics_requests_total request
kafka_network_requestchannel_requestqueuesize
kafka_network_socketserver_networkprocessoravgidle_percent
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent
kafka_server_socket_server_metrics_connection_count listener
kafka_server_(produce|fetch|request|controllermutation)_throttle_time user,client_id
kafka_server_(produce|fetch)_byte_rate user,client_id
kafka_server_request_request_time user,client_id
kafka_server_controllermutation_mutation_rate user,client_id
kafka_coordinator_group_groupmetadatamanager_numgroups({NUMGROUPS})
kafka_server_group_coordinator_metrics_group_count protocol
kafka_server_group_coordinator_metrics_share_group_count state
kafka_server_share_coordinator_metrics_write_total
kafka_server_sharegroupmetrics_dead_letter_queue_(|failed_)records_total
kafka_server_transaction_coordinator_metrics_(transactional_id_count|transaction_timeout_count|active_transaction_total_time_max)
ottla_transactions_(committed|aborted)_total
kafka_server_sessionexpirelistener_zookeeper(disconnects|expires|syncconnects)_total
process_(cpu_seconds_total|resident_memory_bytes|virtual_memory_bytes|open_fds|max_fds|start_time_seconds)
python_gc_(objects_collected|objects_uncollectable|collections)_total generation
ottla_eventloop_lag_seconds quantile
ottla_damage_(found_total|repaired_total|unrepaired)
ottla_scrub_batches_total
ottla_fsync_seconds quantile
kafka_server_client_metrics_instance_count
kafka_server_client_metrics_(unknown_subscription_request|throttle)_total
ottla_client_info client_id,client_instance_id,client_software_name,client_software_version,client_source_address
ottla_client_metrics_(pushes_total|dropped_total|series)
ottla_stage_bytes
ottla_stage_(staged_bytes|expired_bytes|refused)_total
"""
"""Patterns of metric names, each with its labels. The tests compare a scrape of a broker with clients with them."""


def expected() -> Iterator[tuple[str, frozenset[str]]]:
    """Yields each name with its labels. A name is yielded twice if the metric also has a total without one of the labels."""
    for line in NAMES.strip().splitlines():
        pattern, _, labels = line.partition(" ")
        found = re.fullmatch(r"([a-z_]+)(?:\(([a-z_|]+)\))?([a-z_]*)", pattern)
        assert found is not None, line
        for choice in (found[2] or "").split("|"):
            yield f"{found[1]}{choice}{found[3]}", frozenset(filter(None, labels.split(",")))


def exported_names(dialects: tuple[str, ...] = ()) -> frozenset[str]:
    """Returns every name that a sample can have, to check the expressions of dashboards."""
    names = set(SERVICE_FAMILIES)
    for family in FAMILIES.values():
        names.add(family.name)
        names.update(name for dialect in dialects if (name := alias(family, dialect)))
        if family.kind == SUMMARY:
            names.update((f"{family.name}_sum", f"{family.name}_count"))
    return frozenset(names)


def labels_of() -> dict[str, frozenset[str]]:
    """Returns the labels that samples of each name can have."""
    found: dict[str, frozenset[str]] = {}
    for name, labels in expected():
        found[name] = found.get(name, frozenset()) | labels
    return found
