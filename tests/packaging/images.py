"""Container images without a container engine: the Dockerfile's steps run in a clean Debian root by chroot.

Base images are those of Debian: their root is a minimal system of that release, as `debian:SUITE-slim` is.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dockerfile_parse import DockerfileParser  # type: ignore[import-untyped]  # it has no types

from simulators.services.process import Command, Process
from tests.packaging.roots import CHECKOUT, PATH, Root, unpack

_FETCHING = ("PIP_", "SSL_CERT", "REQUESTS_CA", "HTTP", "http", "no_proxy")
"""Variables by which this machine reaches its package index; no part of an image."""
_NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")
_AUTHORITIES = Path("/usr/local/share/ca-certificates")
"""This machine's own authorities, which Debian's ca-certificates adds to its own, for Java as well."""
_BASE = re.compile(r"debian:(?P<suite>[a-z]+)-slim")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile, with continued lines joined."""

    name: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class Image:
    """A built root, and how containers of it are started."""

    root: Root
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "0:0"
    volumes: tuple[str, ...] = ()
    health: tuple[str, ...] = ()
    stop_signal: str = "SIGTERM"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


def read(file: Path) -> list[Instruction]:
    """Return the instructions of a Dockerfile."""
    with file.open("rb") as opened:
        parser = DockerfileParser(fileobj=opened)
        parser.build_args = {}
        return [
            Instruction(step["instruction"], step["value"], step["startline"] + 1)
            for step in parser.structure
            if step["instruction"] != "COMMENT"
        ]


def build(file: Path, archive_of: Callable[[str], Path], folder: Path) -> Image:
    """Execute a Dockerfile; `archive_of` returns the minimal system of a release, by its name."""
    stages: dict[str, Image] = {}
    image: Image | None = None
    for step in read(file):
        if step.name == "FROM":
            base, _, name = step.value.partition(" AS ")
            matched = _BASE.fullmatch(base)
            assert matched is not None, f"{file}:{step.line}: not a base image of Debian: {base}"
            image = Image(unpack(archive_of(matched["suite"]), folder / f"stage-{step.line}"), {"PATH": PATH})
            _prepare(image.root)
            stages[name or str(len(stages))] = image
            continue
        assert image is not None, f"{file}:{step.line}: {step.name} before FROM"
        image = _execute(step, image, stages)
        stages[list(stages)[-1]] = image
    assert image is not None, f"{file}: no instruction"
    return image


def _prepare(root: Root) -> None:
    for place in (*_NETWORK, *map(str, sorted(_AUTHORITIES.glob("*.crt")))):
        if Path(place).exists():
            root.path(place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(place, root.path(place))


def _execute(step: Instruction, image: Image, stages: Mapping[str, Image]) -> Image:
    """Execute one instruction; refuse those that no image of ours has."""
    match step.name:
        case "RUN":
            _run(step, image)
        case "COPY":
            _copy(step, image, stages)
        case "WORKDIR":
            image.root.path(step.value).mkdir(parents=True, exist_ok=True)
            return replace(image, folder=step.value)
        case "EXPOSE":
            pass  # it only documents
        case _:
            return _record(step, image)
    return image


def _record(step: Instruction, image: Image) -> Image:
    """Record how containers are started."""
    match step.name:
        case "ENV":
            given = dict(word.partition("=")[::2] for word in shlex.split(step.value))
            return replace(image, environment={**image.environment, **given})
        case "USER":
            return replace(image, user=step.value)
        case "VOLUME":
            return replace(image, volumes=(*image.volumes, step.value))
        case "STOPSIGNAL":
            return replace(image, stop_signal=step.value)
        case "HEALTHCHECK":
            return replace(image, health=_list(step.value[step.value.index(" CMD ") + 5 :]))
        case "ENTRYPOINT":
            return replace(image, entrypoint=_list(step.value))
        case "CMD":
            return replace(image, command=_list(step.value))
        case _:
            raise AssertionError(f"line {step.line}: {step.name} is not supported here")


def _run(step: Instruction, image: Image) -> None:
    fetching = {name: value for name, value in os.environ.items() if name.startswith(_FETCHING)}
    script = f"cd {shlex.quote(image.folder)} && {step.value}"
    root = image.root.folder
    # Programs such as Java need /proc, which a build by a container engine has as well.
    mounts = f'mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev && exec chroot {root} /bin/sh -c "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", mounts, "sh", script],
        env={**fetching, **image.environment, "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=1_800,
    )
    assert done.returncode == 0, f"line {step.line}: {step.value}\n{(done.stdout + done.stderr)[-4_000:]}"


def _copy(step: Instruction, image: Image, stages: Mapping[str, Image]) -> None:
    words = shlex.split(step.value)
    options = [word for word in words if word.startswith("--")]
    *sources, target = (word for word in words if not word.startswith("--"))
    origin = CHECKOUT
    for option in options:
        name, _, stage = option.partition("=")
        assert name == "--from", f"line {step.line}: {option} is not supported here"
        origin = stages[stage].root.folder
    place = image.root.path(target if target.startswith("/") else f"{image.folder}/{target}")
    for source in sources:
        found = origin / source.lstrip("/")
        if found.is_dir():  # its content, as COPY does
            shutil.copytree(
                found, place, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, place)


def _list(value: str) -> tuple[str, ...]:
    """Read the exec form, which passes signals to the program itself; the shell form is refused."""
    words = json.loads(value)
    assert isinstance(words, list)
    return tuple(map(str, words))


class Container:
    """A process of an image: read-only root, own processes, own network, its user, without rights to more.

    With `tmp`, /tmp is a writable file system of its own; otherwise only the volumes are writable. With `host_network`
    it has this machine's network, as by `docker run --network host`.
    """

    def __init__(
        self,
        image: Image,
        folder: Path,
        environment: Mapping[str, str],
        *,
        tmp: bool = False,
        host_network: bool = False,
    ) -> None:
        self.image = image
        self._environment = {**image.environment, **environment}
        root = image.root.folder
        volumes = "".join(
            f"mkdir -p {folder}/{number} && chown --reference={root}{volume} {folder}/{number} && "
            f"chmod --reference={root}{volume} {folder}/{number} && mount --bind {folder}/{number} {root}{volume} && "
            for number, volume in enumerate(image.volumes)
        )
        temporary = f"mount -t tmpfs -o mode=1777 tmp {root}/tmp && " if tmp else ""
        mounts = (
            f"mount --bind {root} {root} && mount -o remount,bind,ro {root} && {volumes}{temporary}"
            f"mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev && "
            f"{'' if host_network else 'ip link set lo up && '}"
        )
        words = ["env", "-i", *(f"{name}={value}" for name, value in self._environment.items())]
        words += ["sh", "-c", f'cd {image.folder} && exec "$@"', "sh", *image.entrypoint, *image.command]
        chroot = f"exec setpriv --no-new-privs chroot --userspec={image.user} {root} {shlex.join(words)}"
        spaces = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
        spaces += [] if host_network else ["--net"]
        line = (*spaces, "sh", "-c", mounts + chroot)
        self.process = Process(Command("container", line, folder / "container.log"))

    @property
    def pid(self) -> int:
        """The pid of the container's first process, outside of it."""
        [child] = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(child)

    def inside(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the image in the container, as its user."""
        words = ["env", "-i", *(f"{name}={value}" for name, value in self._environment.items()), *command]
        entered = ["nsenter", "--target", str(self.pid), "--mount", "--net", "--pid", "chroot"]
        entered += [f"--userspec={self.image.user}", str(self.image.root.folder), *words]
        return subprocess.run(entered, capture_output=True, text=True, check=False, timeout=120)

    def healthy(self) -> bool:
        """Whether the image's health check succeeds."""
        return self.inside(*self.image.health).returncode == 0

    def beside(self, *command: str) -> str:
        """Run a program of this machine in the container's network."""
        entered = ["nsenter", "--target", str(self.pid), "--net", *command]
        return subprocess.run(entered, capture_output=True, text=True, check=True, timeout=120, cwd=CHECKOUT).stdout


def statuses(pid: int) -> Iterator[tuple[str, str]]:
    """Yield the fields of a process's status."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":\t")
        yield name, value.strip()
