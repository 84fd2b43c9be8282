"""Makes clients for tests with the installed library: confluent-kafka, kafka-python or aiokafka, or else `ottla.client`. A library is
imported on use.

Asynchronous clients need aiokafka. Settings have librdkafka's names, with dots or underscores. kafka-python and aiokafka have other names
for six of them, and for `ssl.endpoint.identification.algorithm`; these are translated. Unless set, a consumer has a new group and reads
from the beginning.
"""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

CONFLUENT, KAFKA_PYTHON, AIOKAFKA, OWN = "confluent-kafka", "kafka-python", "aiokafka", "ottla.client"
_MODULES = {CONFLUENT: "confluent_kafka", KAFKA_PYTHON: "kafka", AIOKAFKA: "aiokafka", OWN: "ottla.testing.own_clients"}
BLOCKING, ASYNCHRONOUS = (CONFLUENT, KAFKA_PYTHON, OWN), (AIOKAFKA,)

ClientSettings = Mapping[str, Any]


class NoClientInstalled(RuntimeError):
    """None of the libraries that could make the client is installed."""


def make(
    kind: str, libraries: tuple[str, ...], wanted: str | None, bootstrap: str, settings: ClientSettings, topics: Iterable[str] = ()
) -> Any:
    """Makes a `Producer`, `Consumer` or `Admin` of the library `wanted`, by default of the first installed library of `libraries`. A client
    of aiokafka is not started. Raises `NoClientInstalled`, or `ValueError` if `wanted` is not one of `libraries`."""
    if kind == "Consumer":
        settings = {"group_id": f"ottla-{uuid.uuid4().hex}", "auto_offset_reset": "earliest", **_underscored(settings)}
    name, module = _load(libraries, wanted)
    if name == AIOKAFKA:
        return _PYTHON_CLASSES[name, kind](module)(*topics, bootstrap_servers=bootstrap, **_of_python(name, settings))
    if name == CONFLUENT:
        config = {"bootstrap.servers": bootstrap, **{key.replace("_", "."): value for key, value in settings.items()}}
        made = importlib.import_module("confluent_kafka.admin").AdminClient(config) if kind == "Admin" else getattr(module, kind)(config)
    elif name == OWN:
        made = module.MAKERS[kind](bootstrap, settings)
    else:
        made = _PYTHON_CLASSES[name, kind](module)(bootstrap_servers=bootstrap, **_of_python(name, settings))
    if subscribed := list(topics):
        made.subscribe(subscribed)
    return made


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
    (AIOKAFKA, "Consumer"): lambda module: module.AIOKafkaConsumer,
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
