"""Every name that boards and alert rules for Kafka ask for, with its labels, in one scrape of a broker process that has clients."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from ottla.server.metric_families import FAMILIES
from ottla.testing.broker import Broker
from tests.clients.left_open import leaves_nothing_open

__all__ = ["leaves_nothing_open"]

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
kafka_server_transaction_coordinator_metrics_(transactional_id_count|transaction_timeout_count|active_transaction_total_time_max)
kafka_server_sessionexpirelistener_zookeeper(disconnects|expires|syncconnects)_total
process_(cpu_seconds_total|resident_memory_bytes|virtual_memory_bytes|open_fds|max_fds|start_time_seconds)
python_gc_(objects_collected|objects_uncollectable|collections)_total generation
ottla_eventloop_lag_seconds quantile
ottla_fsync_seconds quantile
ottla_stage_bytes
ottla_stage_(staged_bytes|expired_bytes|refused)_total
"""


def expected() -> Iterator[tuple[str, frozenset[str]]]:
    for line in NAMES.strip().splitlines():
        pattern, _, labels = line.partition(" ")
        found = re.fullmatch(r"([a-z_]+)(?:\(([a-z_|]+)\))?([a-z_]*)", pattern)
        assert found is not None, line
        for choice in (found[2] or "").split("|"):
            yield f"{found[1]}{choice}{found[3]}", frozenset(filter(None, labels.split(",")))


@pytest.fixture(scope="module")
def scraped() -> Iterator[set[tuple[str, frozenset[str]]]]:
    """The names and labels of one scrape, while a group has a member and a transaction is open."""
    with Broker(topics=["orders:2"], settings={"ottla.metrics.listen": "127.0.0.1:0"}) as broker:
        producer = Producer({"bootstrap.servers": broker.direct_server, "transactional.id": "payments"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("orders", b"x", partition=0)
        producer.commit_transaction(60)
        with closing(broker.consumer("orders", client="confluent-kafka", group_id="readers")) as consumer:
            consumer.commit(message=consumer.poll(60), asynchronous=False)
            producer.begin_transaction()
            producer.produce("orders", b"y", partition=1)
            assert producer.flush(60) == 0
            found = re.search(r"metrics and health on (http://\S+?)[\"\s]", broker.log)
            assert found is not None
            with urllib.request.urlopen(f"{found[1]}/metrics", timeout=60) as answer:
                text = answer.read().decode()
        producer.abort_transaction(60)
    yield {(sample.name, frozenset(sample.labels)) for family in text_string_to_metric_families(text) for sample in family.samples}


def readable(value: str | frozenset[str]) -> str:
    """The same in every worker of a run, which the order of a set is not."""
    return value if isinstance(value, str) else ",".join(sorted(value))


@pytest.mark.parametrize(("name", "labels"), list(expected()), ids=readable)
def test_every_name_has_a_sample_with_its_labels(scraped: set[tuple[str, frozenset[str]]], name: str, labels: frozenset[str]) -> None:
    assert (name, labels) in scraped


def test_nothing_else_is_exported_but_what_is_documented(scraped: set[tuple[str, frozenset[str]]]) -> None:
    of_tls = {name for name in FAMILIES if name.startswith("ottla_tls_")}  # tests/clients/test_tls.py
    known = {name for name, _ in expected()} | {"ottla_info"} | of_tls
    assert {re.sub(r"_(sum|count)$", "", name) if name not in known else name for name, _ in scraped} <= known
    assert set(FAMILIES) <= known
