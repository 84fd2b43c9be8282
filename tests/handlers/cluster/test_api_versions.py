"""ApiVersions: the answers to stock clients, byte for byte, and the answer to a client that asks for our extensions."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.config import load
from ottla.handlers.cluster.api_versions import TELEMETRY, handle
from ottla.handlers.context import RequestContext
from ottla.wire.apis import EXTENSIONS_SINCE, KEYS
from ottla.wire.codec import decoder, encoder
from ottla.wire.framing import write_response
from ottla.wire.messages.api_versions import EXTENSIONS_VERSION, ApiVersionsRequest, ApiVersionsResponse
from tests.controller.cluster import Cluster
from tests.handlers.admin_world import AdminWorld
from tests.handlers.configs.test_describe_configs import CLIENT_METRICS, set_config

GOLDEN = Path(__file__).parents[2] / "golden" / "api_versions.txt"
LINES = [line.split() for line in GOLDEN.read_text(encoding="ascii").splitlines() if not line.startswith("#")]
STAGE, ATTACH = KEYS["StageRecords"], KEYS["AttachRecords"]


def request(extensions: int = -1) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="c", client_software_version="1", ottla_extensions=extensions)


def keys(answer: ApiVersionsResponse) -> set[int]:
    return {api.api_key for api in answer.api_keys}


@pytest.mark.parametrize(("version", "golden"), LINES, ids=[f"v{version}" for version, _ in LINES])
def test_a_stock_client_is_answered_the_same_bytes_as_ever(version: str, golden: str) -> None:
    world = AdminWorld()
    context = RequestContext(int(version), "c", world.connection)
    answer = handle(world.broker, context, request())
    assert write_response(ApiVersionsResponse, int(version))(answer, 7).hex() == golden
    assert not world.connection.has_extensions


def test_all_versions_are_in_the_golden_file() -> None:
    lowest, highest = ApiVersionsRequest.VERSIONS
    assert [int(version) for version, _ in LINES] == list(range(lowest, highest + 1))


@pytest.mark.parametrize("version", range(3, 6))
def test_extensions_are_for_clients_that_ask(version: int) -> None:
    world = AdminWorld()
    assert STAGE not in keys(world.ask(request(), version))
    assert not world.connection.has_extensions
    asked = keys(world.ask(request(EXTENSIONS_VERSION), version))
    assert {STAGE, ATTACH} <= asked and {key for key in asked if key < EXTENSIONS_SINCE} == keys(world.ask(request(), version))
    assert world.connection.has_extensions


def test_the_apis_for_metrics_of_clients_are_advertised_while_there_is_a_subscription() -> None:
    """They are advertised only then, because librdkafka logs a line for each client that asks for its subscription."""
    world = AdminWorld()
    assert not keys(world.ask(request(), 4)) & TELEMETRY
    set_config(world, CLIENT_METRICS, "all", "metrics", "org.")
    assert keys(world.ask(request(), 4)) >= TELEMETRY
    set_config(world, CLIENT_METRICS, "all", "metrics", "")
    assert keys(world.ask(request(), 4)) >= TELEMETRY, "a subscription without metrics is one"


def test_long_names_of_software_are_cut() -> None:
    """Formerly a connection kept up to 64 kB of such names."""
    world = AdminWorld()
    name = ApiVersionsRequest(client_software_name="n" * 32_000, client_software_version="v" * 32_000)
    assert not world.ask(name, 3).error_code
    assert world.connection.client_software_name == "n" * 255 and world.connection.client_software_version == "v" * 255


def test_a_client_may_know_newer_extensions() -> None:
    assert STAGE in keys(AdminWorld().ask(request(EXTENSIONS_VERSION + 1), 3))


@pytest.mark.parametrize("version", range(3))
def test_old_versions_cannot_ask(version: int) -> None:
    world = AdminWorld()
    assert STAGE not in keys(world.ask(request(EXTENSIONS_VERSION), version))
    assert not world.connection.has_extensions


def test_a_broker_of_an_earlier_release_has_no_extensions() -> None:
    config = load(assignments=("ottla.advertise.level=4.3",))[0]
    world = AdminWorld(cluster=Cluster(config=config))
    assert STAGE not in keys(world.ask(request(EXTENSIONS_VERSION), 3))


def test_other_brokers_pass_over_the_tag() -> None:
    """A broker skips a tag that it does not know; here the tag stands for one of a later version of this broker."""
    encoded = encoder(ApiVersionsRequest, 3)(request())
    with_unknown_tag = encoded[:-1] + bytes.fromhex("01 a29c01 02 0001")
    assert decoder(ApiVersionsRequest, 3)(with_unknown_tag, 0) == (request(), len(with_unknown_tag))
