"""Sample requests about the cluster: settings, quotas, features, versions and telemetry; see `sample_requests.py`."""

from __future__ import annotations

from typing import Any

from ottla.client.core.admin import TOPIC_RESOURCE
from ottla.wire.framing import load
from ottla.wire.messages import alter_client_quotas as quotas
from ottla.wire.messages import (
    alter_configs,
    describe_client_quotas,
    describe_configs,
    incremental_alter_configs,
    update_features,
)
from tests.clients.sample_world import World, broker_id_of, plain
from tests.clients.wire_client import In


def _describe_configs(world: World, make: In, cls: Any) -> Any:
    resources = [
        make(describe_configs.DescribeConfigsResource, resource_type=kind, resource_name=name)
        for kind, name in ((TOPIC_RESOURCE, world.topic), (4, str(broker_id_of(world))))
    ]
    return make(cls, resources=resources, include_synonyms=True, include_documentation=True)


def _alter_configs(world: World, make: In, cls: Any) -> Any:
    config = make(alter_configs.AlterableConfig, name="retention.ms", value="86400000000")
    resource = make(
        alter_configs.AlterConfigsResource, resource_type=TOPIC_RESOURCE, resource_name=world.topic, configs=[config]
    )  # fmt: skip
    return make(cls, resources=[resource])


def _incremental_alter_configs(world: World, make: In, cls: Any) -> Any:
    config = make(incremental_alter_configs.AlterableConfig, name="retention.ms", value="86400000000")
    resource = make(
        incremental_alter_configs.AlterConfigsResource, resource_type=TOPIC_RESOURCE, resource_name=world.topic, configs=[config]
    )
    return make(cls, resources=[resource])


def _update_features(_world: World, make: In, cls: Any) -> Any:
    return make(cls, feature_updates=[make(update_features.FeatureUpdateKey, feature="transaction.version", max_version_level=2)])


def _push_telemetry(world: World, make: In, cls: Any) -> Any:
    subscription = world.client.ask(load(71)[0](), 0)
    return make(cls, client_instance_id=subscription.client_instance_id, subscription_id=subscription.subscription_id)


CLUSTER_REQUESTS = {
    18: plain(client_software_name="wire", client_software_version="1"),
    32: _describe_configs,
    33: _alter_configs,
    44: _incremental_alter_configs,
    48: plain(components=[describe_client_quotas.ComponentData(entity_type="user", match_type=2, match=None)]),
    49: plain(entries=[
        quotas.EntryData(
            entity=[quotas.EntityData(entity_type="client-id", entity_name="c")], ops=[quotas.OpData(key="producer_byte_rate", value=1e6)]
        )
    ]),
    55: plain(topics=[]),
    57: _update_features,
    60: plain(include_cluster_authorized_operations=True),
    71: plain(),
    72: _push_telemetry,
    74: plain(),
    20002: plain(),
}  # fmt: skip
