"""Clients for tests from the installed library: confluent-kafka, kafka-python or aiokafka, or else `ottla.client`. Each is imported on use.

Asynchronous clients need aiokafka. Settings may be written with dots or underscores; each library gets the form that it expects, and a
login under its own names. Unless set, a consumer has a new group and reads from the beginning.
"""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

CONFLUENT, KAFKA_PYTHON, AIOKAFKA, OWN = "confluent-kafka", "kafka-python", "aiokafka", "ottla.client"
_MODULES = {CONFLUENT: "confluent_kafka", KAFKA_PYTHON: "kafka", AIOKAFKA: "aiokafka", OWN: "ottla.testing.own_clients"}
_BLOCKING = (CONFLUENT, KAFKA_PYTHON, OWN)

ClientSettings = Mapping[str, Any]


class NoClientInstalled(RuntimeError):
    """None of the libraries that could make the client is installed."""


def producer(bootstrap: str, settings: ClientSettings, library: str | None) -> Any:
    return _make(_BLOCKING, "Producer", bootstrap, settings, library)


def consumer(bootstrap: str, topics: Iterable[str], settings: ClientSettings, library: str | None) -> Any:
    made = _make(_BLOCKING, "Consumer", bootstrap, _reading(settings), library)
    topics = list(topics)
    if topics:
        made.subscribe(topics)
    return made


def admin(bootstrap: str, settings: ClientSettings, library: str | None) -> Any:
    return _make(_BLOCKING, "Admin", bootstrap, settings, library)


def aio_producer(bootstrap: str, settings: ClientSettings) -> Any:
    """Makes an aiokafka producer that is not started yet: `async with broker.aio_producer() as producer`."""
    return _make((AIOKAFKA,), "Producer", bootstrap, settings, None)


def aio_consumer(bootstrap: str, topics: Iterable[str], settings: ClientSettings) -> Any:
    library = _load((AIOKAFKA,), None)[1]
    return library.AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, **_of_python(AIOKAFKA, _reading(settings)))


def aio_admin(bootstrap: str, settings: ClientSettings) -> Any:
    return _make((AIOKAFKA,), "Admin", bootstrap, settings, None)


def _reading(settings: ClientSettings) -> dict[str, Any]:
    given = _underscored(settings)
    return {"group_id": f"ottla-{uuid.uuid4().hex}", "auto_offset_reset": "earliest", **given}


def _make(libraries: tuple[str, ...], kind: str, bootstrap: str, settings: ClientSettings, wanted: str | None) -> Any:
    name, module = _load(libraries, wanted)
    if name == CONFLUENT:
        config = {"bootstrap.servers": bootstrap, **{key.replace("_", "."): value for key, value in settings.items()}}
        if kind == "Admin":
            return importlib.import_module("confluent_kafka.admin").AdminClient(config)
        return getattr(module, kind)(config)
    if name == OWN:
        make = {"Producer": module.make_producer, "Consumer": module.make_consumer, "Admin": module.make_client}[kind]
        return make(bootstrap, settings)
    return _PYTHON_CLASSES[name, kind](module)(bootstrap_servers=bootstrap, **_of_python(name, settings))


_OF_PYTHON = {
    "sasl_username": "sasl_plain_username", "sasl_password": "sasl_plain_password", "ssl_ca_location": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile", "ssl_key_location": "ssl_keyfile", "ssl_key_password": "ssl_password",
}  # fmt: skip
_ALGORITHM = "ssl_endpoint_identification_algorithm"
_PYTHON_CLASSES: dict[tuple[str, str], Callable[[Any], Any]] = {
    (KAFKA_PYTHON, "Producer"): lambda module: module.KafkaProducer,
    (KAFKA_PYTHON, "Consumer"): lambda module: module.KafkaConsumer,
    (KAFKA_PYTHON, "Admin"): lambda module: module.KafkaAdminClient,
    (AIOKAFKA, "Producer"): lambda module: module.AIOKafkaProducer,
    (AIOKAFKA, "Admin"): lambda _module: importlib.import_module("aiokafka.admin").AIOKafkaAdminClient,
}


def _of_python(library: str, settings: ClientSettings) -> dict[str, Any]:
    """Returns the settings with the names of kafka-python and aiokafka. aiokafka gets certificates as an SSL context."""
    named = _underscored(settings)
    if library == AIOKAFKA and named.get("security_protocol", "").endswith("SSL") and "ssl_context" not in named:
        from ottla.client.tls import tls_context

        options = {key: named.pop(key) for key in [*named] if key.startswith("ssl_")}
        named["ssl_context"] = tls_context({key.replace("_", "."): value for key, value in options.items()})
    if _ALGORITHM in named:
        named["ssl_check_hostname"] = named.pop(_ALGORITHM) == "https"
    return {_OF_PYTHON.get(key, key): value for key, value in named.items()}


def _underscored(settings: ClientSettings) -> dict[str, Any]:
    return {key.replace(".", "_"): value for key, value in settings.items()}


def _load(libraries: tuple[str, ...], wanted: str | None) -> tuple[str, Any]:
    if wanted is not None and wanted not in libraries:
        raise ValueError(f"client {wanted!r} is not one of {', '.join(libraries)}")
    for name in (wanted,) if wanted is not None else libraries:
        try:
            return name, importlib.import_module(_MODULES[name])
        except ModuleNotFoundError as error:
            if error.name != _MODULES[name]:
                raise
    raise NoClientInstalled(f"no Kafka client is installed for this: pip install {wanted or libraries[0]}")
