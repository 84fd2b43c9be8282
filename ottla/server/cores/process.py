"""One broker of the service as a process, which is started again when it ends.

The broker reads from a pipe whose other end only the service has. When the service ends, however it ends, the broker ends too.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence

from ottla.server.cores.members import Member

log = logging.getLogger("ottla.cores")

READY = b"READY "
PAUSE_S_MIN, PAUSE_S_MAX = 0.5, 30.0
"""The pause before a broker is started again. It doubles with each end, until the broker has run for `STEADY_S`."""
STEADY_S = 60.0


class DidNotStart(Exception):
    """A broker ended before it was ready for the first time. It has written the reason itself."""

    def __init__(self, broker_id: int, exit_code: int) -> None:
        super().__init__(f"broker {broker_id} did not start (exit code {exit_code})")
        self.exit_code = exit_code


class BrokerProcess:
    """The process of one broker."""

    def __init__(self, member: Member, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """`command` and `environment` start a broker with the settings of the whole service."""
        self.member = member
        self.address = ""
        """The address that the broker listens on; empty until it was ready once."""
        self.is_ready = False
        self.starts = 0
        given = [word for name, value in member.settings.items() for word in ("--set", f"{name}={value}")]
        self._command = [*command, *given]
        self._environment = dict(environment)
        self._process: Process | None = None
        self._is_stopping = asyncio.Event()

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    async def keep(self, on_ready: Callable[[], object]) -> None:
        """Runs the broker until `stop`. Calls `on_ready` each time when it serves. Raises `DidNotStart` if it ends before its first
        READY."""
        loop, pause_s = asyncio.get_running_loop(), PAUSE_S_MIN
        while not self._is_stopping.is_set():
            started_s = loop.time()
            exit_code = await self._run(on_ready)
            if self._is_stopping.is_set():
                return
            if not self.address:
                raise DidNotStart(self.member.broker_id, exit_code)
            pause_s = PAUSE_S_MIN if loop.time() - started_s > STEADY_S else pause_s
            log.error("broker %d has ended (exit code %d) and starts again in %.1f s", self.member.broker_id, exit_code, pause_s)
            await self._pause(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    def begin_stop(self) -> None:
        """Stops the broker cleanly. `keep` returns when it has ended."""
        self._is_stopping.set()
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    def reload(self) -> None:
        """Makes the broker read its configuration again."""
        if self.is_ready and self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGHUP)

    async def _run(self, on_ready: Callable[[], object]) -> int:
        """Runs the process once. Returns its exit code, negative for a signal."""
        # A session of its own: Ctrl-C reaches only the service, which then stops its brokers.
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, env=self._environment, start_new_session=True
        )
        self.starts += 1
        assert process.stdout is not None
        if self._is_stopping.is_set():
            process.terminate()
        line = await process.stdout.readline()
        if line.startswith(READY):
            self.address, self.is_ready = line.split()[1].decode(), True
            on_ready()
        try:
            return await process.wait()
        finally:
            self.is_ready = False

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._is_stopping.wait(), seconds)
        except TimeoutError:
            return
