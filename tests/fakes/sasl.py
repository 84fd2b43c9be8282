"""A fake SASL mechanism with two steps that accepts any user except Mallory, immediately or when the test calls `finish`."""

from __future__ import annotations

from collections.abc import Callable

from ottla.security.authentication import StepResult


class FakeExchange:
    """The token `hello` is answered by a request for a name; any other token is the name. With `is_slow` answers wait for `finish`, as if
    hashing took long.
    """

    def __init__(self, *, is_slow: bool = False) -> None:
        self._is_slow = is_slow
        self._waiting: list[Callable[[], None]] = []

    def step(self, token: bytes, done: Callable[[StepResult], None]) -> None:
        if self._is_slow:
            self._waiting.append(lambda: done(self._judge(token)))
        else:
            done(self._judge(token))

    def finish(self) -> None:
        """Sends the waiting answers."""
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            answer()

    @staticmethod
    def _judge(token: bytes) -> StepResult:
        if token == b"hello":
            return StepResult(token=b"who are you?")
        if token == b"mallory":
            return StepResult(error="no such user")
        return StepResult(token=b"welcome", principal=f"User:{token.decode()}")
