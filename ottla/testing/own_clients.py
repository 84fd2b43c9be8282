"""Clients for tests from `ottla.client`, for an environment without another Kafka library.

They are the `Producer`, `Consumer` and `Client` of `ottla.client` with the same options. Each object has its own connections, which are
closed at the latest when the object is deleted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ottla.client.blocking import client, consumer, producer
from ottla.client.blocking.cluster import Cluster

OF_CONNECTIONS = ("security.", "sasl.", "ssl.")


class Producer(producer.Producer):
    """`ottla.client`'s producer. Keys, values and headers may be text, and headers a mapping. A missing topic is created if the broker
    creates topics automatically.
    """

    def produce(self, topic: str, value: Any = None, key: Any = None, *, headers: Any = (), **options: Any) -> None:
        if topic not in self.cluster.metadata.topics:
            self.cluster.topic(topic, auto_create=True)
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        super().produce(topic, _bytes(value), _bytes(key), headers=tuple((name, _bytes(data)) for name, data in pairs), **options)

    def __del__(self) -> None:
        if hasattr(self, "_routes"):
            self._routes.close()
            self.cluster.close()


class Consumer(consumer.Consumer):
    def __del__(self) -> None:
        if hasattr(self, "_routes"):
            self._drop_connections()
            self.cluster.close()


class Client(client.Client):
    def __del__(self) -> None:
        self.close()


def _maker(kind: type, known: type) -> Callable[[str, Mapping[str, Any]], Any]:
    def make(bootstrap: str, settings: Mapping[str, Any]) -> Any:
        options = _options(settings, known)
        made = _connected(bootstrap, settings)
        return kind(made, **options)

    return make


MAKERS = {
    "Producer": _maker(Producer, producer.Producer),
    "Consumer": _maker(Consumer, consumer.Consumer),
    "Admin": _maker(Client, client.Client),
}


def _connected(bootstrap: str, settings: Mapping[str, Any]) -> Cluster:
    named = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return client.connect(bootstrap, {name: value for name, value in named.items() if name.startswith(OF_CONNECTIONS)}).cluster


def _options(settings: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """Returns the settings that do not concern connections. Raises `ValueError` for an unknown setting."""
    known = [*inspect.signature(kind).parameters][1:]
    found = {name.replace(".", "_"): value for name, value in settings.items() if not name.replace("_", ".").startswith(OF_CONNECTIONS)}
    for name in found:
        if name not in known:
            other = "another client's options need that client: pip install confluent-kafka"
            raise ValueError(f"ottla.client's {kind.__name__} has no option {name!r}; it has: {', '.join(known) or 'none'}; {other}")
    return found


def _bytes(data: Any) -> Any:
    return data.encode() if isinstance(data, str) else data
