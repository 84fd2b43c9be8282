"""`ports.Channel` under TLS: OpenSSL over buffers in memory, in front of a plain channel.

The steps of the handshake run in a thread, because the private key's operation is most of their work. Nothing is read meanwhile. Afterwards
bytes are decrypted directly into the user's buffer. Slices of files are read in pieces as the peer accepts them, so a large answer is never
in memory as a whole.
"""

from __future__ import annotations

import logging
import ssl
from collections import deque
from collections.abc import Callable, Sequence

from ottla.adapters.network import SocketChannel
from ottla.base.ports import Part, Receiver, Slice

log = logging.getLogger("ottla.tls")

CIPHER_BYTES = 1 << 17
PIECE_BYTES = 1 << 18
QUEUED_CIPHER_BYTES_MAX = 1 << 20
BYTES_PER_TURN = 4 << 20
SECURED, WANTS_MORE, CLOSED = "secured", "wants more", "closed"

RunThenCall = Callable[[Callable[[], str], Callable[[str], object]], object]
"""Runs work in a thread, then calls a function with its result on the loop."""


class TlsLoop:
    """Threads and a receive buffer that all channels of one event loop share. A channel empties the buffer as soon as it has received
    bytes."""

    def __init__(self, run: RunThenCall, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.run = run
        self.call_soon = call_soon
        self.cipher = memoryview(bytearray(CIPHER_BYTES))


class TlsChannel:
    """See the module. `to_host` is set on the client's side: the host to connect to, for SNI and the check of its name."""

    def __init__(self, inner: SocketChannel, context: ssl.SSLContext, shared: TlsLoop, *, to_host: str | None = None) -> None:
        self._inner = inner
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        is_server = to_host is None
        self._tls: ssl.SSLObject | None = context.wrap_bio(
            self._incoming, self._outgoing, server_side=is_server, server_hostname=to_host
        )
        self._run = shared.run
        self._call_soon = shared.call_soon
        self._cipher = shared.cipher
        self._receiver: Receiver | None = None
        self._queue: deque[Part] = deque()
        self._position = 0  # bytes of the part at the head of the queue that were encrypted already
        self._plain_bytes = 0
        self._is_secured = self._is_closed = self._is_decrypting = self._is_turn_pending = False
        self._is_reading = True
        self.on_secured: Callable[[bytes | None], object] = _ignore
        self.on_failed: Callable[[str], object] | None = None
        self.peer_host, self.peer_port = inner.peer_host, inner.peer_port
        self.queued_bytes = self.bytes_sent = 0

    def unsent_bytes(self) -> int:
        return sum(len(part) for part in self._queue if not isinstance(part, Slice)) + self._inner.unsent_bytes()

    def local_host(self) -> str:
        return self._inner.local_host()

    # For the user

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._inner.open(self)

    def pause_reading(self) -> None:
        self._is_reading = False
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        if self._is_closed or self._is_reading:
            return
        self._is_reading = True
        if self._is_secured:
            self._inner.resume_reading()
            self._call_soon(self._decrypt)  # bytes that were received before the pause

    def send(self, parts: Sequence[Part]) -> None:
        if self._is_closed:
            return
        self._queue.extend(parts)
        self._plain_bytes += sum(map(len, parts))
        self._encrypt()

    def close(self) -> None:
        if not self._is_closed:
            self._inner.close()

    # For the plain channel

    def buffer(self) -> memoryview:
        return self._cipher

    def received(self, count: int) -> None:
        self._incoming.write(self._cipher[:count])
        if self._is_secured:
            self._decrypt()
        else:
            self._inner.pause_reading()
            self._run(self._shake, self._shaken)

    def drained(self) -> None:
        self._encrypt()
        self._note_drained()

    def closed(self) -> None:
        self._is_closed = True
        self._queue.clear()
        self._tls = None  # frees tens of KiB without the garbage collector
        self.queued_bytes = self._plain_bytes = 0
        receiver, self._receiver = self._receiver, None
        self.on_secured, self.on_failed = _ignore, None  # breaks the reference cycle with the user
        if receiver is not None:
            receiver.closed()

    # The handshake

    def begin(self) -> None:
        """Starts the handshake on the client's side; called once, after `open`."""
        self._inner.pause_reading()
        self._run(self._shake, self._shaken)

    def _shake(self) -> str:
        """Does the next step of the handshake, in a thread. Returns `SECURED`, `WANTS_MORE`, `CLOSED`, or why the handshake failed."""
        tls = self._tls
        if tls is None:
            return CLOSED
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            return WANTS_MORE
        except (ssl.SSLError, OSError) as error:
            return getattr(error, "verify_message", None) or getattr(error, "reason", None) or str(error)
        return SECURED

    def _shaken(self, result: str) -> None:
        if self._is_closed:
            return
        self._flush()
        if result == SECURED:
            self._is_secured = True
            assert self._tls is not None, "the channel is open"
            self.on_secured(self._tls.getpeercert(binary_form=True))
            self._encrypt()
            self._decrypt()
        elif result != WANTS_MORE:
            self._fail(result)
            return
        if self._is_reading or not self._is_secured:
            self._inner.resume_reading()

    def _fail(self, reason: str) -> None:
        if self.on_failed is not None:
            self.on_failed(reason)
        else:
            log.warning("closing %s:%d: no TLS: %s", self.peer_host, self.peer_port, reason)
        self.close()

    # Bytes

    def _decrypt(self) -> None:
        if self._is_decrypting:
            return
        self._is_decrypting = True
        try:
            while self._is_reading and not self._is_closed and self._decrypt_once():
                pass
        finally:
            self._is_decrypting = False
        if not self._is_closed:
            self._flush()

    def _decrypt_once(self) -> bool:
        """Decrypts into the user's buffer, until it is full or no bytes are left. Returns whether more may be decrypted."""
        tls = self._tls
        assert self._receiver is not None and tls is not None, "the channel is open"
        room, filled, is_end, is_dry = self._receiver.buffer(), 0, False, False
        try:
            while filled < len(room) and not is_end:
                count = tls.read(len(room) - filled, room[filled:])
                is_end = not count
                filled += int(count)
        except ssl.SSLWantReadError:
            is_dry = True
        except ssl.SSLError:
            is_end = True
        if filled:
            self._receiver.received(filled)
        if is_end:
            self.close()
        return not is_end and not is_dry

    def _encrypt(self) -> None:
        """Encrypts queued parts while the socket's queue is short, at most about `BYTES_PER_TURN` in one call. The rest follows in later
        iterations of the event loop."""
        turn_end, done = BYTES_PER_TURN, 0
        try:
            while self._is_secured and self._queue and self._inner.queued_bytes < QUEUED_CIPHER_BYTES_MAX and done < turn_end:
                done += self._encrypt_piece(self._queue[0])
                self._flush()
                if self._is_closed:
                    return
        except (OSError, ssl.SSLError):
            self.close()
            return
        self._note_sizes()
        if done >= turn_end and self._queue and self._inner.queued_bytes < QUEUED_CIPHER_BYTES_MAX and not self._is_turn_pending:
            self._is_turn_pending = True
            self._call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_turn_pending = False
        if not self._is_closed:
            self._encrypt()
            self._note_drained()

    def _encrypt_piece(self, part: Part) -> int:
        if isinstance(part, Slice):
            try:
                piece = memoryview(part.read_piece(self._position, PIECE_BYTES))
            except OSError:
                part.failed()
                raise
            if not piece:
                part.failed()
                raise OSError("a segment file is shorter than the slice to be sent")
        else:
            piece = memoryview(part)[self._position : self._position + PIECE_BYTES]
        tls, at = self._tls, 0
        assert tls is not None, "the channel is open"
        while at < len(piece):
            at += tls.write(piece[at:])
        self._position += at
        self._plain_bytes -= at
        if self._position >= len(part):
            self._queue.popleft()
            self._position = 0
        return at

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._inner.send([self._outgoing.read()])
        self._note_sizes()

    def _note_sizes(self) -> None:
        self.queued_bytes = self._plain_bytes + self._inner.queued_bytes
        self.bytes_sent = self._inner.bytes_sent

    def _note_drained(self) -> None:
        self._note_sizes()
        if not self._is_closed and self.queued_bytes == 0 and self._receiver is not None:
            self._receiver.drained()


def _ignore(_certificate: bytes | None) -> None:
    """The default of `on_secured`."""
