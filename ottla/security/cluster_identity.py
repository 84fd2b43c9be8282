"""Mutual authentication of brokers: a SASL mechanism of our own, both sides, without I/O.

All brokers read one secret from the metadata store. The connecting broker sends a nonce, its id, the id of the broker that it wants to
reach, its broker epoch and the cluster id. The accepting broker answers with its nonce and a proof; then the connecting broker sends its
own proof. A proof is an HMAC-SHA256 with the secret over all values that both have sent and over the role of its sender. It therefore
cannot be reflected, replayed on another connection or sent to another broker. The secret itself is never sent.

The accepting broker refuses another cluster id, another receiver than itself, its own id as the sender, a sender that has no broker epoch
yet, and a broker epoch older than the known one. It accepts a sender whose registration is not known here yet. `handlers/context.py`
(`is_inter_broker`) says what an authenticated broker may do. The mechanism does not protect the messages that follow; TLS does.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from ottla.base.immutable import immutable
from ottla.base.ports import Random
from ottla.base.settings.security import CLUSTER_PROOF
from ottla.security.authentication import StepResult

MECHANISM = CLUSTER_PROOF
NONCE_BYTES = 16
PROOF_BYTES = 32
HELLO_BYTES_MAX = 256
FORM = 1
_HELLO = Struct(f">B{NONCE_BYTES}siiq")

Secret = Callable[[Callable[[bytes | None], object]], object]
"""Calls back with the cluster's secret, now or later; with None if it cannot be read now."""


@immutable(kw_only=True)
class Hello:
    """The first message of the connecting broker."""

    nonce: bytes
    sender: int
    receiver: int
    broker_epoch: int
    cluster_id: str


@immutable
class Peer:
    """The authenticated broker at the other end of a connection, with the broker epoch that it had when the connection was opened."""

    broker_id: int
    broker_epoch: int


def hello_bytes(hello: Hello) -> bytes:
    return _HELLO.pack(FORM, hello.nonce, hello.sender, hello.receiver, hello.broker_epoch) + hello.cluster_id.encode()


def read_hello(token: bytes) -> Hello:
    """Parses the first message. Raises `ValueError`."""
    if not _HELLO.size < len(token) <= HELLO_BYTES_MAX:
        raise ValueError(f"a greeting of {len(token)} bytes")
    form, nonce, sender, receiver, broker_epoch = _HELLO.unpack_from(token)
    if form != FORM:
        raise ValueError(f"a greeting of form {form}")
    cluster_id = token[_HELLO.size :].decode()
    return Hello(nonce=nonce, sender=sender, receiver=receiver, broker_epoch=broker_epoch, cluster_id=cluster_id)


def proof(secret: bytes, role: bytes, hello: bytes, nonce: bytes) -> bytes:
    """Computes a proof. `role` is `ACCEPTS` or `CONNECTS`, the side that sends it."""
    import hmac  # imported on use: a single broker does not need it

    return hmac.digest(secret, role + nonce + hello, "sha256")


def is_proof(found: bytes, expected: bytes) -> bool:
    import hmac

    return hmac.compare_digest(found, expected)


ACCEPTS, CONNECTS = b"accepts", b"connects"


class Connecting:
    """The connecting side: a client's exchange (`client/core/sasl.py`)."""

    mechanism = MECHANISM

    def __init__(self, secret: bytes, hello: Hello) -> None:
        self._secret = secret
        self._hello = hello_bytes(hello)
        self._has_proved = False

    def first(self) -> bytes:
        return self._hello

    def slow_part(self, challenge: bytes) -> None:
        return None

    def answer(self, challenge: bytes) -> bytes | None:
        """Returns the answer to the challenge; None once it was returned. Raises `ValueError` if the other side does not know the
        secret."""
        if self._has_proved:
            return None
        nonce, found = challenge[:NONCE_BYTES], challenge[NONCE_BYTES:]
        if len(challenge) != NONCE_BYTES + PROOF_BYTES or not is_proof(found, proof(self._secret, ACCEPTS, self._hello, nonce)):
            raise ValueError("it does not know the cluster's secret")
        self._has_proved = True
        return proof(self._secret, CONNECTS, self._hello, nonce)


class Accepting:
    """The accepting side: a server's exchange (`security/authentication.py`). `accepted` is called when the peer has proved its identity.
    """

    def __init__(self, nonce: bytes, secret: Secret, refusal_of: Callable[[Hello], str], accepted: Callable[[Peer], object]) -> None:
        self._nonce = nonce
        self._secret = secret
        self._refusal_of = refusal_of
        self._accepted = accepted
        self._hello: Hello | None = None
        self._expected = b""

    def step(self, token: bytes, done: Callable[[StepResult], None]) -> None:
        if self._hello is None:
            self._greet(token, done)
        elif is_proof(token, self._expected):
            self._accepted(Peer(self._hello.sender, self._hello.broker_epoch))
            done(StepResult(principal=f"Broker:{self._hello.sender}"))
        else:
            done(StepResult(error="the cluster's secret is not known to the sender"))

    def _greet(self, token: bytes, done: Callable[[StepResult], None]) -> None:
        try:
            hello = read_hello(token)
        except ValueError as error:
            done(StepResult(error=str(error)))
            return
        reason = self._refusal_of(hello)
        if reason:
            done(StepResult(error=reason))
            return

        def challenge(secret: bytes | None) -> None:
            if secret is None:
                done(StepResult(error="the cluster's secret cannot be read now"))
                return
            self._hello = hello
            self._expected = proof(secret, CONNECTS, token, self._nonce)
            done(StepResult(token=self._nonce + proof(secret, ACCEPTS, token, self._nonce)))

        self._secret(challenge)


class ClusterIdentity:
    """Creates the exchanges of one broker, for both sides."""

    def __init__(
        self,
        random: Random,
        secret: Secret,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        cluster_id: Callable[[], str],
        epoch_of: Callable[[int], int],
    ) -> None:
        """`epoch_of` returns the registered epoch of a broker as known here; -1 if it is unknown."""
        self._random = random
        self._secret = secret
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._cluster_id = cluster_id
        self._epoch_of = epoch_of

    def connecting(self, peer_id: int, done: Callable[[Connecting | None], object]) -> None:
        """Calls `done` with the exchange for a connection to this broker; with None if the secret cannot be read now."""

        def begin(secret: bytes | None) -> None:
            if secret is None:
                done(None)
                return
            hello = Hello(
                nonce=self._random.token_bytes(NONCE_BYTES), sender=self._broker_id, receiver=peer_id,
                broker_epoch=self._broker_epoch(), cluster_id=self._cluster_id(),
            )  # fmt: skip
            done(Connecting(secret, hello))

        self._secret(begin)

    def accepting(self, accepted: Callable[[Peer], object]) -> Accepting:
        return Accepting(self._random.token_bytes(NONCE_BYTES), self._secret, self._refusal_of, accepted)

    def _refusal_of(self, hello: Hello) -> str:
        if hello.cluster_id != self._cluster_id():
            return f"this broker belongs to cluster {self._cluster_id()}"
        if hello.receiver != self._broker_id or hello.sender == self._broker_id or hello.sender < 0:
            return f"this is broker {self._broker_id}"
        if hello.broker_epoch < 0:
            return f"broker {hello.sender} is not registered"
        known = self._epoch_of(hello.sender)
        if hello.broker_epoch < known:
            return f"broker {hello.sender} has registered again, with epoch {known}"
        return ""
