"""A TCP proxy between a client and a server: it can hold back bytes in either direction, close connections, and refuse new ones. Threads
forward the bytes; the methods may be called in any thread. After `hold`, received bytes are kept until `release`; they are lost if the
connections are cut before.
"""

from __future__ import annotations

import select
import socket
import threading

HOST = "127.0.0.1"
PIECE_BYTES = 65536


class TcpProxy:
    """Forwards connections to a port of the loopback address."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._woken, self._waker = socket.socketpair()
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._holds_requests = self._holds_answers = self._refuses = self._is_closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def hold(self, *, requests: bool = True, answers: bool = True) -> None:
        """Stops forwarding in these directions. Connections stay open; new ones are accepted, and their bytes are held too."""
        with self._lock:
            self._holds_requests, self._holds_answers = requests, answers
            self._wake()

    def held(self) -> bytes:
        """Returns the bytes of clients that the proxy holds back, at most one piece of each connection."""
        with self._lock:
            return b"".join(self._peek(client) for client, _ in self._pairs)

    def release(self) -> None:
        """Forwards everything again and accepts connections."""
        with self._lock:
            self._holds_requests = self._holds_answers = self._refuses = False
            self._wake()

    def cut(self, *, refuse: bool = False) -> None:
        """Closes all connections; held bytes are lost. With `refuse` new connections are closed immediately until `release`."""
        with self._lock:
            self._refuses = refuse
            for pair in self._pairs:
                for end in pair:
                    end.close()
            self._pairs.clear()
            self._wake()

    def close(self) -> None:
        self._is_closed = True
        self._wake()
        self._thread.join()
        self.cut()
        for end in (self._listener, self._woken, self._waker):
            end.close()

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._is_closed:
            with self._lock:
                watched = self._watched()
            try:
                readable = select.select([self._listener, self._woken, *watched], [], [])[0]
            except (OSError, ValueError):
                continue  # a connection was cut in the meantime
            with self._lock:
                if self._woken in readable:
                    self._woken.recv(PIECE_BYTES)
                if self._listener in readable:
                    self._accept()
                for end in readable:
                    self._forward(end)

    def _wake(self) -> None:
        """Wakes the thread, so that it checks its connections again."""
        self._waker.send(b"\0")

    def _watched(self) -> list[socket.socket]:
        return [
            end
            for client, server in self._pairs
            for end, is_held in ((client, self._holds_requests), (server, self._holds_answers))
            if not is_held
        ]

    def _peek(self, end: socket.socket) -> bytes:
        try:
            return end.recv(PIECE_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:
            return b""

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._refuses:
            client.close()
            return
        try:
            server = socket.create_connection((HOST, self._target_port), 5)
        except OSError:
            client.close()
            return
        self._pairs.append((client, server))

    def _forward(self, end: socket.socket) -> None:
        pair = next((pair for pair in self._pairs if end in pair), None)
        if pair is None or end not in self._watched():
            return
        other = pair[1] if end is pair[0] else pair[0]
        try:
            piece = end.recv(PIECE_BYTES)
            other.sendall(piece)
        except OSError:
            piece = b""
        if not piece:
            self._pairs.remove(pair)
            end.close()
            other.close()
