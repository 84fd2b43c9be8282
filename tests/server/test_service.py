"""The broker as a service of systemd, and as the first process of a container."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.server import service

ORPHANAGE = """
import os
from ottla.server.service import reap_orphans
for _ in range(3):
    if os.fork() == 0:
        os._exit(0)
count = 0
while count < 3:
    count += reap_orphans()
print(count, reap_orphans())
"""

FIRST_PROCESS = """
import asyncio, os, signal, sys
from ottla.server import service
from ottla.server.app import new_event_loop

service.FIRST_PROCESS, service.REAP_SECONDS = os.getpid(), 0.005
loop = new_event_loop() if sys.argv[1] == "uvloop" else asyncio.SelectorEventLoop()
service.on_signals(loop, lambda: os.kill(os.getpid(), signal.SIGTERM), lambda: None)
if (orphan := os.fork()) == 0:
    os._exit(0)

async def until_reaped():
    while os.path.exists(f"/proc/{orphan}"):
        await asyncio.sleep(0.005)
    print("reaped", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(60)

loop.run_until_complete(until_reaped())
"""


def test_systemd_is_notified_on_its_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        assert service.notify(service.READY, "STATUS=listening", environment={"NOTIFY_SOCKET": path})
        assert sock.recv(100) == b"READY=1\nSTATUS=listening"


def test_systemd_may_use_an_abstract_socket() -> None:
    name = f"ottla-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + name)
        assert service.notify(service.STOPPING, environment={"NOTIFY_SOCKET": f"@{name}"})
        assert sock.recv(100) == b"STOPPING=1"


def test_systemd_sees_a_reload_begin_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        messages: list[bytes] = []
        service.notify_reloaded(lambda: messages.append(sock.recv(100)))
        assert messages[0].startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert sock.recv(100) == b"READY=1"


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "nonsense"}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_without_a_listener_nothing_breaks(environment: dict[str, str]) -> None:
    assert not service.notify(service.READY, environment=environment)


def test_signals_stop_once_and_reload_often() -> None:
    loop = asyncio.SelectorEventLoop()
    calls: list[str] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        service.on_signals(loop, lambda: calls.append("stop"), lambda: calls.append("reload"))
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
            os.kill(os.getpid(), number)
            loop.run_until_complete(asyncio.sleep(0.01))
        assert calls == ["reload", "reload", "stop"]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        loop.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def test_orphans_are_reaped() -> None:
    done = subprocess.run([sys.executable, "-c", ORPHANAGE], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split() == ["3", "0"]


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_the_first_process_reaps_and_can_be_made_to_stop(loop: str) -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_PROCESS, loop], capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.returncode) == ("reaped\n", 128 + signal.SIGTERM), done.stderr


def test_a_broker_notifies_systemd_when_it_serves_reloads_and_stops(tmp_path: Path) -> None:
    path, config, log = str(tmp_path / "notify"), tmp_path / "server.properties", tmp_path / "log"
    config.write_text("log.retention.ms=1000\nnum.partitions=2\n")
    options = ["--port", "0", "--data-dir", str(tmp_path / "data"), "--config", str(config)]
    command = [sys.executable, "-m", "ottla.cli.main", "start", *options]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, log.open("wb") as stderr:
        sock.bind(path)
        sock.settimeout(20)
        process = subprocess.Popen(command, env={**os.environ, "NOTIFY_SOCKET": path}, stdout=subprocess.PIPE, stderr=stderr, text=True)
        try:
            assert sock.recv(200).startswith(b"READY=1\nSTATUS=listening on PLAINTEXT://127.0.0.1:")
            later = "num.partitions: changed in the configuration, restart the broker to apply the change"
            outcomes = ("2000", "changed: log.retention.ms"), ("nonsense", "the configuration stays as it is: "), ("2000", later)
            for value, outcome in outcomes:
                config.write_text(f"log.retention.ms={value}\nnum.partitions={len(value)}\n")
                process.send_signal(signal.SIGHUP)
                assert sock.recv(200).startswith(b"RELOADING=1\n")
                assert sock.recv(200) == b"READY=1"
                assert outcome in log.read_text()
            process.terminate()
            assert sock.recv(200).startswith(b"STOPPING=1")
            out, _ = process.communicate(timeout=300)
            assert out.startswith("READY 127.0.0.1:")
            assert process.returncode == 0
        finally:
            process.kill()
            process.wait()
    assert log.read_text().count("nothing has changed") == 1


def test_the_watchdog_is_fed_while_the_loop_turns(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    loop = asyncio.SelectorEventLoop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.setblocking(False)
        environment = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "30000", "WATCHDOG_PID": str(os.getpid())}

        async def receive_alive(times: int) -> None:
            for _ in range(times):
                assert await asyncio.wait_for(loop.sock_recv(sock, 100), 10) == b"WATCHDOG=1"

        assert service.feed_watchdog(loop, environment)
        loop.run_until_complete(receive_alive(4))
    loop.close()


@pytest.mark.parametrize("environment", [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}])
def test_a_watchdog_that_is_not_for_us_is_not_fed(environment: dict[str, str]) -> None:
    loop = asyncio.SelectorEventLoop()
    assert not service.feed_watchdog(loop, environment)
    loop.close()


TERMINATED_EARLY = """
import os, signal
from ottla.server import app
from ottla.cli.main import main

app.BrokerServer.start = lambda server: os.kill(os.getpid(), signal.SIGTERM)
raise SystemExit(main(["start", "--ephemeral", "--port", "0"]))
"""


def test_sigterm_ends_a_start_that_is_not_ready() -> None:
    """Without a handler, the kernel would not end the first process of a container by SIGTERM."""
    done = subprocess.run([sys.executable, "-c", TERMINATED_EARLY], capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr.splitlines()[-1] == "error: stopped by SIGTERM before it was ready"


TERMINATED_ON_THE_LOOP = """
import asyncio, os, signal, sys
from ottla.server import app
from ottla.cli.main import main

if sys.argv[1] == "asyncio":
    app.new_event_loop = asyncio.SelectorEventLoop

async def open_http(server):
    server.loop.call_soon(os.kill, os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.05)

app.BrokerServer.open_http = open_http
raise SystemExit(main(["start", "--ephemeral", "--port", "0"]))
"""


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_sigterm_while_the_loop_runs_and_the_broker_is_not_ready_is_not_lost(loop: str) -> None:
    """An exception in the signal's handler would be raised in whatever callback is running. The loop would log it, and the broker would
    continue."""
    done = subprocess.run([sys.executable, "-c", TERMINATED_ON_THE_LOOP, loop], capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.returncode) == ("", 1), done.stderr
    assert done.stderr.splitlines()[-1] == "error: stopped by SIGTERM before it was ready"
    assert "Traceback" not in done.stderr
