"""The steps of the Containerfile, followed outside a container: built, started as process 1, probed, stopped, started again on its data."""

from __future__ import annotations

import os
import re
import shutil
import signal
import site
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.release.containerfile import Instruction, below, command_of, environment_of, instructions, rest_of, stages

ROOT = Path(__file__).resolve().parents[2]
BUILD, FINAL = stages(instructions(ROOT / "Containerfile"))
SECONDS_MAX = 120


class Image(NamedTuple):
    """What the steps made: a directory that stands for the container's root, and the environment of its process."""

    root: Path
    environment: dict[str, str]


def follow(step: Instruction, root: Path, environment: dict[str, str]) -> None:
    if step.name == "COPY" and not step.rest.startswith("--from"):
        *sources, destination = below(root, step.rest).split()
        for source in sources:
            copy(ROOT / source, Path(destination))
    elif step.name == "RUN":
        subprocess.run(["sh", "-euc", below(root, step.rest)], cwd=root, env=environment, check=True, timeout=170)


def copy(source: Path, destination: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, destination, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        destination.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, destination)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Followed with the dependencies and the build tool of these tests, so that nothing is downloaded."""
    root = tmp_path_factory.mktemp("container")
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1", "PIP_NO_COMPILE": "0",
    }  # fmt: skip
    for step in BUILD:
        follow(step, root, environment)
        for packages in root.glob("opt/ottla/lib/python*/site-packages"):
            (packages / "of_the_tests.pth").write_text("\n".join(site.getsitepackages()))
    (root / "var/lib/ottla").mkdir(parents=True)
    made = {name: below(root, value) for name, value in environment_of(FINAL).items()}
    path = f"{root / 'opt/ottla/bin'}:{os.environ['PATH']}"
    return Image(root, {**on_free_ports(made), "PATH": path, "HOME": str(root / "var/lib/ottla")})


def on_free_ports(environment: dict[str, str]) -> dict[str, str]:
    ports = {name: free_port() for name in ("9092", "9404")}
    moved = dict(environment)
    for port, free in ports.items():
        moved = {name: value.replace(f":{port}", f":{free}") for name, value in moved.items()}
    return moved


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def as_process_one() -> list[str]:
    """The start of a command that runs the rest as process 1 of a process namespace."""
    ways = (["unshare", "--pid"], ["unshare", "--user", "--map-root-user", "--pid"])
    for way in ways:
        command = [*way, "--fork", "--kill-child"]
        if shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return []


@contextmanager
def running(image: Image) -> Iterator[subprocess.Popen[str]]:
    command = [*as_process_one(), *command_of(rest_of(FINAL, "CMD")[-1])]
    process = subprocess.Popen(
        command, cwd=image.root / "var/lib/ottla", env=image.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=SECONDS_MAX)


def is_healthy(image: Image) -> bool:
    listen = image.environment["KAFKA_OTTLA_METRICS_LISTEN"]
    words = [word.replace("127.0.0.1:9404", listen) for word in command_of(rest_of(FINAL, "HEALTHCHECK")[-1])]
    return subprocess.run(words, env=image.environment, capture_output=True, check=False, timeout=SECONDS_MAX).returncode == 0


def wait_until_healthy(image: Image, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + SECONDS_MAX
    while not is_healthy(image):
        assert process.poll() is None and time.monotonic() < until, "the health check never passed"


def ottla(image: Image, *arguments: str, text: str = "") -> str:
    address = image.environment["KAFKA_ADVERTISED_LISTENERS"].partition("://")[2]
    command = [str(image.root / "opt/ottla/bin/ottla"), *arguments, "-b", address]
    return subprocess.run(
        command, input=text, env=image.environment, capture_output=True, text=True, check=True, timeout=SECONDS_MAX
    ).stdout


def stop(process: subprocess.Popen[str], children: list[int]) -> int:
    """Sends STOPSIGNAL to process 1, as a container's runtime does; returns its exit code."""
    number = getattr(signal, rest_of(FINAL, "STOPSIGNAL")[-1])
    for child in children or [process.pid]:
        os.kill(child, number)
    return process.wait(SECONDS_MAX)


def children_of(process: subprocess.Popen[str]) -> list[int]:
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(child) for child in listed.read_text().split()] if as_process_one() else []


def test_it_starts_is_healthy_serves_stops_and_keeps_its_data(image: Image) -> None:
    assert not is_healthy(image)
    with running(image) as process:
        wait_until_healthy(image, process)
        ottla(image, "produce", "orders", text="apples\n")
        assert stop(process, children_of(process)) == 0
    with running(image) as process:
        wait_until_healthy(image, process)
        assert ottla(image, "consume", "orders", "--from-beginning", "-e", "-q") == "apples\n"
        assert stop(process, children_of(process)) == 0
    assert (image.root / "var/lib/ottla/data/orders-0").is_dir()


def test_it_is_slim_and_not_root_and_keeps_its_data_on_a_volume() -> None:
    (base,) = {rest.split()[0] for rest in (*rest_of(BUILD, "FROM"), *rest_of(FINAL, "FROM"))}
    assert re.fullmatch(r"python:[\d.]+-slim@sha256:[0-9a-f]{64}", base), "a small image, pinned by its digest"
    (user,) = rest_of(FINAL, "USER")
    assert user.isdigit() and int(user) >= 1000, "a number, so that an orchestrator can see that it is not root"
    assert f"--uid {user} " in rest_of(FINAL, "RUN")[0]
    assert environment_of(FINAL)["KAFKA_LOG_DIRS"].startswith(f"{rest_of(FINAL, 'VOLUME')[0]}/")


def test_what_the_build_copies_is_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".containerignore").read_text(encoding="utf-8").splitlines() if line.startswith("!")}
    copied = {source for rest in rest_of(BUILD, "COPY") for source in rest.split()[:-1]}
    assert copied == kept
    assert all((ROOT / source).exists() for source in copied)
