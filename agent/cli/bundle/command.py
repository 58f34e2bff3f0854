"""`oncegate support-bundle`: one file with everything that helps to find a fault from afar, without secrets."""

import argparse
import io
import json
import os
import platform
import shutil
import sqlite3
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from agent import release
from agent.cli.api import own_api
from agent.cli.bundle.redaction import Redaction, document_secrets, secrets_of
from agent.cli.failures import CommandError
from agent.config import load, origins
from agent.config.mistakes import ConfigurationError
from agent.config.settings import Settings
from agent.status import read_status
from agent.store.read.documents import RejectSelection, read_rejected
from agent.store.read.flush_request import request_counts
from agent.terminal import json_line, size

JSON = "print the members as one JSON object"
EXAMPLES = """examples:
  sudo oncegate support-bundle
  sudo oncegate support-bundle /tmp/greenhouse-3.tar.gz
  tar -xzOf oncegate-support-greenhouse-3-20260131-120000.tar.gz oncegate-support/doctor.json

It holds: versions, the effective configuration, status, findings of doctor, metrics, states of the connections, reasons
of rejections, and the end of the log. It holds no password, key or token, no events, and no names of devices but those
that the log or a reason mentions. Run it as root for a complete bundle. Inspect the file before you share it.
"""
FOLDER = "oncegate-support"
JOURNAL_LINES = 2_000
JOURNAL_SECONDS_MAX = 30.0
UNIT = "oncegate.service"
_PACKAGES = ("aiocoap", "cbor2", "confluent-kafka", "h11", "paho-mqtt", "prometheus-client", "sqlite-utils", "uvicorn")
_MODEL = Path("/proc/device-tree/model")
_OS_RELEASE = Path("/etc/os-release")
_LIVE = ("now", "started", "clock", "trouble", "links", "lanes", "errors", "store_bytes_max", "written_bytes")
"""Of the status page's data: neither devices nor events."""
Collect = Callable[[], object]
"""Returns a text, or a document for JSON."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="the new file (default: named after gateway and time)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the bundle, for its owner only."""
    settings, configuration, secrets = _configuration(arguments.config)
    redaction = Redaction(secrets)
    gateway = "unconfigured" if settings is None else settings.gateway.id
    file = arguments.file or Path(f"{FOLDER}-{gateway}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    sizes: dict[str, int] = {}
    try:
        file.touch(0o600, exist_ok=False)
        with tarfile.open(file, "w:gz") as archive:
            for name, collect in members(settings, configuration):
                content = encoded(collect, redaction)
                sizes[name] = len(content)
                member = tarfile.TarInfo(f"{FOLDER}/{name}")
                member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
                archive.addfile(member, io.BytesIO(content))
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from error
    if arguments.json:
        print(json_line({"file": str(file), "members": sizes}))
    else:
        print(f"{file}: {size(file.stat().st_size)}, with {', '.join(sizes)}")
    return 0


def _configuration(path: Path) -> tuple[Settings | None, object, list[str]]:
    """Return the settings (None with mistakes), their form in the bundle, and their secrets."""
    secrets: list[str] = []
    try:
        document, _ = load.read(path)
        secrets += document_secrets(document)
        settings, shown = origins.read(path, os.environ)
    except ConfigurationError as error:
        return None, {"mistakes": [asdict(mistake) for mistake in error.mistakes]}, secrets
    return settings, [asdict(setting) for setting in shown], [*secrets, *secrets_of(settings)]


def members(settings: Settings | None, configuration: object) -> Iterator[tuple[str, Collect]]:
    """Yield the names of the members, each with the function that collects it.

    Without settings the log is left out, since it is not known which secrets to look for in it.
    """
    yield "versions.json", _versions
    yield "configuration.json", lambda: configuration
    if settings is None:
        return
    yield "status.json", lambda: _status(settings)
    yield "live.json", lambda: _live(settings)
    yield "metrics.txt", lambda: _metrics(settings)
    yield "rejected.json", lambda: _rejected(settings)
    yield "doctor.json", lambda: _doctor(settings)
    yield "journal.txt", _journal


def encoded(collect: Collect, redaction: Redaction) -> bytes:
    """Return what a function collects, without secrets; or the error that prevents it."""
    try:
        content = collect()
    except Exception as error:  # noqa: BLE001  # what is broken is what the bundle is made for
        content = f"not collected: {type(error).__name__}: {error}\n"
    if isinstance(content, str):
        return redaction.clean_text(content).encode("utf-8", "replace")
    return json.dumps(redaction.clean(content), indent=1, ensure_ascii=False, default=str).encode("utf-8", "replace")


def _versions() -> object:
    from confluent_kafka import libversion

    from agent.cli.doctor.machine import text_of

    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "missing"
    system = dict(line.split("=", 1) for line in text_of(_OS_RELEASE).splitlines() if "=" in line)
    return {
        "oncegate": release.version(),
        "form": release.form(),
        "python": platform.python_version(),
        "packages": packages,
        "librdkafka": libversion()[0],
        "sqlite": sqlite3.sqlite_version,
        "system": system.get("PRETTY_NAME", "").strip('"'),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "model": text_of(_MODEL).strip("\0\n"),
        "processors": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    }


def _status(settings: Settings) -> object:
    request_counts(settings.gateway.state_dir)
    return read_status(settings.gateway.state_dir, settings.gateway.id).document()


def _live(settings: Settings) -> object:
    live = own_api(settings.http).get("/api/v1/live?after=0").document
    return {name: live[name] for name in _LIVE}


def _metrics(settings: Settings) -> str:
    return own_api(settings.http).get("/metrics").body.decode()


def _rejected(settings: Settings) -> object:
    """Return the latest rejections without the bytes, which belong to the sensors."""
    found = read_rejected(settings.gateway.state_dir, RejectSelection(), 100)
    return [{name: one[name] for name in ("number", "received", "via", "reason")} for one in found]


def _doctor(settings: Settings) -> object:
    from agent.cli.doctor.examination import examine

    return [asdict(finding) for finding in examine(settings)]


def _journal() -> str:
    program = shutil.which("journalctl")
    if program is None:
        return "not collected: this machine has no journal\n"
    command = (program, "--unit", UNIT, "--lines", str(JOURNAL_LINES), "--no-pager", "--output", "short-iso")
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, timeout=JOURNAL_SECONDS_MAX
    )
    return done.stdout + done.stderr
