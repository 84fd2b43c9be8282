"""One connection to one broker as a protocol without I/O: it takes received frames, and returns answers and the bytes to send.

A connection opens in steps: ApiVersions (once more in version 0 when the broker is old, KIP-511), then SaslHandshake and SaslAuthenticate
for each exchange. `start` gives the first bytes. `advance` gets each frame that arrives and returns the next bytes to send, until the
connection is ready. From then on `request` makes frames and `response` reads the answers, in the order of the requests.

If the broker limits the lifetime of sessions (KIP-368), `login_again` reauthenticates on the open connection while no answer is awaited.
`advance` gets the answers. No request may be sent until the connection is ready again.

`ALLOWED` lists the states and their transitions. An error in the opening, or in an answer, closes the connection for good, because the
bytes that follow have no known meaning. A request that cannot be encoded raises an error and closes nothing. The callers have the sockets,
the timeouts and TLS.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.base.errors import ApiError, ErrorCode, OttlaError, WireError, error_code
from ottla.client.core.frames import FrameReader
from ottla.client.core.versions import HANDSHAKE_VERSION, Versions
from ottla.client.errors import ConnectError, MalformedResponseError, UsageError, refused
from ottla.wire.apis import API_NAMES
from ottla.wire.codec import decoder, encoder_parts
from ottla.wire.framing import API_VERSIONS, REQUEST_START_BYTES, load, pack_request_start, request_header_end, response_header_reader
from ottla.wire.messages.api_versions import EXTENSIONS_VERSION, NO_EXTENSIONS, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.schema import Buffer, Request

if TYPE_CHECKING:
    from ottla.client.core.sasl import SaslExchange

CLIENT_SOFTWARE = "ottla"

_INT32 = struct.Struct(">i")
_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


class State(Enum):
    """The state of a connection."""

    NEW = "new"
    VERSIONS = "asked for versions"
    HANDSHAKE = "asked for a SASL mechanism"
    AUTHENTICATE = "in a SASL exchange"
    READY = "ready"
    CLOSED = "closed"


ALLOWED: dict[State, frozenset[State]] = {
    State.NEW: frozenset({State.VERSIONS, State.CLOSED}),
    State.VERSIONS: frozenset({State.HANDSHAKE, State.READY, State.CLOSED}),
    State.HANDSHAKE: frozenset({State.AUTHENTICATE, State.CLOSED}),
    State.AUTHENTICATE: frozenset({State.HANDSHAKE, State.READY, State.CLOSED}),
    State.READY: frozenset({State.HANDSHAKE, State.CLOSED}),
    State.CLOSED: frozenset(),
}


class RequestForm(NamedTuple):
    """The codecs of one class of request in one version, and the end of its header on this connection."""

    api_key: int
    version: int
    header_end: bytes
    encode: Callable[[Any], list[Any]]
    read_header: Callable[[Buffer, int], tuple[int, int]]
    decode: Callable[[Any, int], tuple[Any, int]]


class PendingRequest(NamedTuple):
    """A request whose answer has not arrived."""

    correlation_id: int
    form: RequestForm


class ConnectionProtocol:
    """See the module. `peer` is the address as messages name it; `with_extensions` asks for APIs that are Ottla's and not Kafka's.

    `proof` is a second SASL exchange after the login. With it a broker proves that it belongs to the cluster.
    """

    def __init__(
        self,
        peer: str,
        *,
        client_id: str | None = CLIENT_SOFTWARE,
        software_version: str = "unknown",
        sasl: SaslExchange | None = None,
        proof: SaslExchange | None = None,
        with_extensions: bool = False,
    ) -> None:
        self.peer = peer
        self.client_id = client_id
        self.state = State.NEW
        self.is_ready = False
        self.versions = Versions(peer)
        self.frames = FrameReader()
        self.pending: deque[PendingRequest] = deque()
        self._forms: dict[tuple[type[Request], int], RequestForm] = {}
        self._software_version = software_version
        self._sasl: SaslExchange | None = None
        self._second_half: Callable[[], bytes] | None = None
        """The second half of the current step of the opening, for `end_step`."""
        self._exchanges = deque(exchange for exchange in (sasl, proof) if exchange is not None)
        self._extensions = EXTENSIONS_VERSION if with_extensions else NO_EXTENSIONS
        self._correlation_id = 0
        self.session_lifetime_ms = 0
        """The client has to log in again within this time of its last login; 0: never."""
        self._was_answered = False
        """Whether an answer to a request other than ApiVersions has arrived."""

    def close(self) -> None:
        """Closes the connection and drops its pending requests. A closed connection cannot be opened again."""
        self._move(State.CLOSED)
        self.pending.clear()

    def _move(self, state: State) -> None:
        if state is not self.state:
            assert state in ALLOWED[self.state], f"{self.state} cannot become {state}"
            self.state = state
            self.is_ready = state is State.READY

    # Opening

    def start(self) -> bytes:
        self._move(State.VERSIONS)
        return self._ask_versions(HANDSHAKE_VERSION)

    def advance(self, frame: memoryview) -> bytes:
        """Takes the answer to a step of the opening. Returns the next bytes to send; no bytes if the connection is ready."""
        self.begin_step(frame)
        return self.end_step()

    def begin_step(self, frame: memoryview) -> Callable[[], object] | None:
        """The first half of `advance`: takes the answer. Returns the slow part of the second half, to run in a thread before
        `end_step`; None if `end_step` is quick."""
        if self.state is State.VERSIONS:
            self._second_half = partial(self._take_versions, frame)
            return None
        try:
            answer = self.response(frame)
        except OttlaError:
            self.close()
            raise
        self._second_half = partial(self._take_sasl, answer)
        if self.state is not State.AUTHENTICATE or answer.error_code:
            return None
        assert self._sasl is not None, "an exchange is under way"
        return self._sasl.slow_part(bytes(answer.auth_bytes))

    def end_step(self) -> bytes:
        """The second half of `advance`: returns the next bytes to send."""
        rest, self._second_half = self._second_half, None
        assert rest is not None, "a step was begun"
        try:
            return rest()
        except OttlaError:
            self.close()
            raise

    def login_again(self, sasl: SaslExchange) -> bytes:
        """Returns the first bytes of another login. Callers call it before the session ends."""
        assert self.is_ready and not self.pending, "a login begins only while no request is pending"
        self.session_lifetime_ms = 0
        self._exchanges.append(sasl)
        return self._next_exchange()

    def hung_up(self) -> ConnectError:
        """Returns the error for a peer that has closed the connection. Brokers that require a login close at the first request without a
        login, so the error then has a hint.
        """
        wants_login = self.is_ready and self._sasl is None and not self._was_answered
        hint = "; it may want a login (security.protocol=SASL_PLAINTEXT or SASL_SSL)" if wants_login else ""
        return ConnectError(f"{self.peer} closed the connection{hint}")

    def hang_up_at_start(self, error: Exception) -> ConnectError:
        """Returns the error for a peer that closed the connection after the first bytes: it expects TLS, or is no Kafka broker."""
        return ConnectError(f"{error}; it may not be a Kafka broker, or it may want TLS (security.protocol=SSL)")

    def _ask_versions(self, version: int) -> bytes:
        body = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE, client_software_version=self._software_version, ottla_extensions=self._extensions
        )
        return self.request(body, version=version)

    def _take_versions(self, frame: memoryview) -> bytes:
        pending = self.pending.popleft()
        try:
            if _INT32.unpack_from(frame, 0)[0] != pending.correlation_id:
                raise WireError("an answer to another request")
            # A broker that lacks the version answers in the form of version 0 (KIP-511).
            version = 0 if bytes(frame[4:6]) == _UNSUPPORTED_VERSION else pending.form.version
            answer: ApiVersionsResponse = decoder(ApiVersionsResponse, version)(frame, 4)[0]
        except (WireError, struct.error) as error:
            raise self.malformed(error) from None
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION and pending.form.version:
            return self._ask_versions(0)
        if answer.error_code:
            raise MalformedResponseError(f"{self.peer} refused the request for its API versions (error {answer.error_code})")
        self.versions.learn(answer)
        return self._next_exchange()

    def _next_exchange(self) -> bytes:
        if not self._exchanges:
            self._move(State.READY)
            return b""
        from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest

        self._sasl = self._exchanges.popleft()
        self._move(State.HANDSHAKE)
        return self.request(SaslHandshakeRequest(mechanism=self._sasl.mechanism), version=1)

    def _take_sasl(self, answer: Any) -> bytes:
        sasl = self._sasl
        assert sasl is not None, "an exchange is under way"
        if self.state is State.HANDSHAKE:
            if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                said = "its user lacks the permission CLUSTER_ACTION; add the user to super.users"
                raise refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{self.peer} does not accept this client as a broker: {said}")
            if answer.error_code:
                offered = ", ".join(answer.mechanisms) or "no SASL"
                raise refused(error_code(answer.error_code), f"{self.peer} offers {offered}, not {sasl.mechanism}")
            self._move(State.AUTHENTICATE)
            return self._token(sasl.first())
        if answer.error_code:
            said = answer.error_message or ("the token is refused" if sasl.mechanism == "OAUTHBEARER" else "name or password is wrong")
            raise refused(error_code(answer.error_code), f"{self.peer}: {said}")
        try:
            token = sasl.answer(bytes(answer.auth_bytes))
        except ValueError as error:
            raise refused(ErrorCode.SASL_AUTHENTICATION_FAILED, f"{self.peer}: {error}") from None
        if token is not None:
            return self._token(token)
        self.session_lifetime_ms = answer.session_lifetime_ms or self.session_lifetime_ms
        return self._next_exchange()

    def _token(self, token: bytes) -> bytes:
        from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest

        return self.request(SaslAuthenticateRequest(auth_bytes=token))

    # Requests and answers

    def request(self, body: Request, *, version: int | None = None, is_answered: bool = True) -> bytes:
        """Returns the frame of a request. Registers it as pending, unless `is_answered` is false."""
        return b"".join(self.request_pieces(body, version=version, is_answered=is_answered))

    def request_pieces(self, body: Request, *, version: int | None = None, is_answered: bool = True) -> list[Buffer]:
        """Returns the frame of a request in pieces. Large record batches are not copied and must not change until they are sent."""
        if self.state is State.CLOSED:
            raise ConnectError(f"the connection to {self.peer} is closed")
        cls = type(body)
        key = cls.API_KEY
        if version is None:
            version = self.versions.version_of(key)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        try:
            form = self._forms.get((cls, version)) or self._form(cls, version)
            pieces = form.encode(body)
        except ApiError as error:  # this version cannot encode a value of the request
            raise refused(error.code, error.message) from None
        except (AssertionError, AttributeError, TypeError, struct.error) as error:  # the caller's value has the wrong type
            raise UsageError(f"the request {API_NAMES[key]} cannot have such a value: {error}") from None
        size = REQUEST_START_BYTES + len(form.header_end) + sum(map(len, pieces))
        pieces.insert(0, pack_request_start(size, key, version, self._correlation_id) + form.header_end)
        if is_answered:
            self.pending.append(PendingRequest(self._correlation_id, form))
        return pieces

    def _form(self, cls: type[Request], version: int) -> RequestForm:
        key = cls.API_KEY
        form = self._forms[cls, version] = RequestForm(
            key, version, request_header_end(key, version, self.client_id),
            encoder_parts(cls, version), response_header_reader(key, version), decoder(load(key)[1], version),
        )  # fmt: skip
        return form

    def response(self, frame: memoryview) -> Any:
        """Returns the answer to the oldest pending request. Bytes fields are views into the frame. A malformed answer closes the
        connection.
        """
        if not self.pending:
            self.close()
            raise MalformedResponseError(f"{self.peer} answers though nothing was asked; is that the right port?")
        pending = self.pending.popleft()
        form = pending.form
        try:
            correlation_id, start = form.read_header(frame, 0)
            if correlation_id != pending.correlation_id:
                raise WireError(f"an answer to request {correlation_id} instead of {pending.correlation_id}")
            answer = form.decode(frame, start)[0]
            self._was_answered = True
            return answer
        except WireError as error:
            self.close()
            raise self.malformed(error, pending) from None

    def malformed(self, error: Exception, pending: PendingRequest | None = None) -> MalformedResponseError:
        form = pending.form if pending is not None else None
        what = f" to {API_NAMES[form.api_key]} {form.version}" if form is not None and form.api_key != API_VERSIONS else ""
        return MalformedResponseError(f"{self.peer} does not answer{what} like a Kafka broker ({error}); is that the right port?")
