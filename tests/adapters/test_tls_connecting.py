"""Connections between brokers by TLS: the other side's certificate and host are checked, and this broker shows its own."""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ottla.adapters.network import SocketNetwork
from ottla.adapters.tls_channel import TlsChannel
from ottla.adapters.tls_listeners import TlsListeners
from ottla.base.config import BrokerConfig
from ottla.base.ports import Channel
from ottla.security.distinguished_name import subject_of
from tests.adapters.test_network import Receiver
from tests.clients.certificates import Authority
from tests.server.threads import run_until


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory, need_program: Callable[[str], str]) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), need_program)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def settings(keystore: Path, trusted: Path, **more: str) -> dict[str, str]:
    return {
        "zookeeper.connect": "z:2181", "broker.id": "1", "listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL",
        "ssl.keystore.location": str(keystore), "ssl.truststore.location": str(trusted), "ssl.client.auth": "required",
        **{name.replace("_", "."): value for name, value in more.items()},
    }  # fmt: skip


class Broker:
    """One broker's network, and what was connected to it: the peer's certificate, and its bytes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, values: dict[str, str]) -> None:
        self.loop = loop
        self.config = BrokerConfig(values)
        self.tls = TlsListeners(loop, self.config)
        self.network = SocketNetwork(loop)
        self.network.secure_of, self.network.connect_by_tls = self.tls.secure_of, self.tls.connect
        self.listener = self.network.listen("127.0.0.1", 0, 10, tls="SSL")
        self.certificates: list[bytes | None] = []
        self.receiver = Receiver()
        self.channels: list[Channel] = []
        self.listener.accept(self._accept)

    def _accept(self, channel: Channel) -> None:
        channel.on_secured = self.certificates.append  # type: ignore[attr-defined]
        channel.open(self.receiver)
        self.channels.append(channel)

    def connect(self, other: Broker, host: str = "localhost", receiver: Receiver | None = None) -> Channel | str:
        """The channel, or why there is none."""
        outcomes: list[Channel | str] = []

        def connected(channel: Channel) -> None:
            channel.open(receiver or Receiver())
            outcomes.append(channel)

        self.network.connect(host, other.listener.port, connected, outcomes.append, tls="SSL")
        run_until(self.loop, lambda: outcomes)
        (outcome,) = outcomes
        return outcome

    def close(self) -> None:
        for channel in self.channels:
            channel.close()
        self.listener.close()
        self.network.close()
        self.tls.close()


@pytest.fixture
def make(loop: asyncio.AbstractEventLoop) -> Iterator[Callable[[dict[str, str]], Broker]]:
    made: list[Broker] = []

    def one(values: dict[str, str]) -> Broker:
        made.append(Broker(loop, values))
        return made[-1]

    yield one
    for broker in made:
        broker.close()


Make = Callable[[dict[str, str]], Broker]


def test_both_sides_show_certificates(make: Make, authority: Authority, loop: asyncio.AbstractEventLoop) -> None:
    near = make(settings(authority.issue("near", "/O=Example/CN=near"), authority.ca))
    far = make(settings(authority.issue("far"), authority.ca))
    receiver = Receiver()
    channel = near.connect(far, receiver=receiver)
    assert not isinstance(channel, str)
    channel.send([b"question"])
    run_until(loop, lambda: far.receiver.data == b"question")
    assert [subject_of(certificate or b"") for certificate in far.certificates] == ["CN=near,O=Example"]
    far.channels[0].send([b"answer" * 50_000])
    run_until(loop, lambda: len(receiver.data) == 300_000)
    assert receiver.data == b"answer" * 50_000
    far.channels[0].close()
    run_until(loop, lambda: receiver.events == ["closed"])


@pytest.mark.parametrize("wrong", ["authority", "host"])
def test_another_brokers_certificate_is_checked(
    make: Make, authority: Authority, tmp_path: Path, need_program: Callable[[str], str], wrong: str
) -> None:
    near = make(settings(authority.issue("near"), authority.ca))
    if wrong == "authority":
        another = Authority(tmp_path, need_program, "another")
        far = make(settings(another.issue("far"), authority.ca))
        assert "unable to get local issuer certificate" in str(near.connect(far))
    else:
        far = make(settings(authority.issue("far", names="DNS:elsewhere.example"), authority.ca))
        assert "localhost" in str(near.connect(far)) and "127.0.0.1" in str(near.connect(far, "127.0.0.1"))
        careless = make(settings(authority.issue("near"), authority.ca, ssl_endpoint_identification_algorithm=""))
        channel = careless.connect(far)
        assert not isinstance(channel, str)
        channel.close()


def test_a_certificate_that_is_set_while_the_broker_runs(
    make: Make, authority: Authority, caplog: pytest.LogCaptureFixture, loop: asyncio.AbstractEventLoop
) -> None:
    """As a stored setting of another broker's doing; what cannot be used leaves the one before in force."""
    caplog.set_level(logging.INFO, "ottla.tls")
    near, far = (make(settings(authority.issue(name), authority.ca)) for name in ("near", "far"))
    elsewhere = str(authority.issue("elsewhere", names="DNS:elsewhere.example"))

    def connects(keystore: str | None) -> bool:
        known = len(caplog.messages)
        far.config.set_dynamic({}, {} if keystore is None else {"listener.name.ssl.ssl.keystore.location": keystore})
        run_until(loop, lambda: any(message.startswith("TLS ") for message in caplog.messages[known:]))
        return reaches(near, far)

    assert reaches(near, far)
    assert not connects(elsewhere)
    assert not connects("/no/such/file")
    assert "TLS stays as it was: listener SSL: cannot read ssl.keystore.location=/no/such/file" in caplog.text
    assert connects(None)


def reaches(near: Broker, far: Broker) -> bool:
    """Whether the far broker shows a certificate for localhost."""
    channel = near.connect(far)
    if isinstance(channel, str):
        assert "localhost" in channel
        return False
    channel.close()
    return True


def test_a_certificate_that_ends_soon_is_in_the_log(make: Make, authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    before = datetime.now(UTC)
    near = make(settings(authority.issue("near"), authority.ca))
    assert "listener SSL: the certificate of ssl.keystore.* ends in 1 day, on " in caplog.text
    (until,) = near.tls.ends().values()
    assert timedelta(days=1) < datetime.fromtimestamp(until, UTC) - before < timedelta(days=3)


def test_what_was_examined_is_in_force_at_once(make: Make, authority: Authority) -> None:
    near, far = (make(settings(authority.issue(name), authority.ca)) for name in ("near", "far"))
    values = {"listener.name.ssl.ssl.keystore.location": str(authority.issue("elsewhere", names="DNS:elsewhere.example"))}
    reason, examined = far.tls.examine({"SSL": far.config.listeners_with(values).tls("SSL")})
    assert reason is None
    far.tls.keep(examined)
    far.config.set_dynamic({}, values)
    assert not reaches(near, far)


def test_other_brokers_must_be_able_to_connect_with_what_is_examined(
    make: Make, authority: Authority, tmp_path: Path, need_program: Callable[[str], str]
) -> None:
    far = make(settings(authority.issue("far"), authority.ca))
    another = Authority(tmp_path, need_program, "another").issue("far")
    reason, _ = far.tls.examine({"SSL": far.config.listeners_with({"ssl.keystore.location": str(another)}).tls("SSL")})
    assert reason is not None and "other brokers could not connect" in reason and "unable to get local issuer certificate" in reason


def test_what_does_not_speak_tls_is_no_connection(make: Make, authority: Authority, loop: asyncio.AbstractEventLoop) -> None:
    near = make(settings(authority.issue("near"), authority.ca))
    outcomes: list[Channel | str] = []

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async def serve() -> asyncio.Server:
        return await asyncio.start_server(answer, "127.0.0.1", 0)

    async def end() -> None:
        server.close()
        await server.wait_closed()

    server = loop.run_until_complete(serve())
    near.network.connect("127.0.0.1", int(server.sockets[0].getsockname()[1]), outcomes.append, outcomes.append, tls="SSL")
    run_until(loop, lambda: outcomes)
    assert str(outcomes[0]).startswith("no TLS: ")
    loop.run_until_complete(end())


def test_a_closed_connection_is_freed_without_the_collector(make: Make, authority: Authority, loop: asyncio.AbstractEventLoop) -> None:
    """The channel, OpenSSL's part of it, and what uses it: cycles of references would wait for the collector, which does not know how
    much memory OpenSSL has."""
    near = make(settings(authority.issue("near"), authority.ca))
    far = make(settings(authority.issue("far"), authority.ca))
    gc.collect()
    gc.disable()
    try:
        channel = near.connect(far, receiver=Held())
        assert not isinstance(channel, str)
        run_until(loop, lambda: far.certificates)
        far.channels[0].on_secured = far.channels[0].on_failed = lambda _about, own=far.channels[0]: own  # type: ignore[attr-defined, misc]
        assert (objects_of(ssl.SSLObject), objects_of(TlsChannel), objects_of(Held)) == (2, 2, 1)
        channel.close()
        del channel
        run_until(loop, lambda: far.receiver.events == ["closed"])
        far.channels.clear()
        run_until(loop, lambda: objects_of(TlsChannel) == 0)
        assert (objects_of(ssl.SSLObject), objects_of(Held)) == (0, 0)
    finally:
        gc.enable()


class Held(Receiver):
    """A receiver of which there is no other."""


def objects_of(kind: type) -> int:
    return sum(isinstance(one, kind) for one in gc.get_objects())
