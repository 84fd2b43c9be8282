"""A SASL mechanism of two steps that accepts any user but Mallory, at once or when the test says."""

from __future__ import annotations

from collections.abc import Callable

from ottla.security.authentication import StepResult


class FakeExchange:
    """`hello` is asked for a name, any other token is one. With `is_slow` answers wait for `finish`, as if hashing took its time."""

    def __init__(self, *, is_slow: bool = False) -> None:
        self._is_slow = is_slow
        self._waiting: list[Callable[[], None]] = []

    def step(self, token: bytes, done: Callable[[StepResult], None]) -> None:
        if self._is_slow:
            self._waiting.append(lambda: done(self._judge(token)))
        else:
            done(self._judge(token))

    def finish(self) -> None:
        """Gives the answers that wait."""
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
