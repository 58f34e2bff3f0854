"""`oncegate support-bundle`: one file with everything that helps to find a fault from afar, without secrets."""

from __future__ import annotations

import argparse
import io
import os
import tarfile
import time
from dataclasses import asdict
from pathlib import Path

from agent.cli.failures import FAILURE, print_error
from agent.config import load, origins
from agent.config.mistakes import ConfigurationError
from agent.config.settings import Settings
from agent.terminal import json_line, size

EXAMPLES = """examples:
  sudo oncegate support-bundle
  sudo oncegate support-bundle /tmp/greenhouse-3.tar.gz
  tar -xzOf oncegate-support-greenhouse-3-20260131-120000.tar.gz oncegate-support/doctor.json

It holds: versions, the effective configuration, status, findings of doctor, metrics, states of the connections, reasons
of rejections, and the end of the log. It holds no password, key or token, no events, and no names of devices but those
that the log or a reason mentions. Run it as root for a complete bundle. Inspect the file before you share it.
"""
FOLDER = "oncegate-support"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="the new file (default: named after gateway and time)"
    )
    parser.add_argument("--json", action="store_true", help="print the members as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Write the bundle, for its owner only."""
    from agent.cli.bundle.contents import encoded, members
    from agent.cli.bundle.redaction import Redaction

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
                _add(archive, name, content)
    except OSError as error:
        print_error(f"{file}: {error.strerror}")
        return FAILURE
    if arguments.json:
        print(json_line({"file": str(file), "members": sizes}))
    else:
        print(f"{file}: {size(file.stat().st_size)}, with {', '.join(sizes)}")
    return 0


def _configuration(path: Path) -> tuple[Settings | None, object, list[str]]:
    """Return the settings, None where they have mistakes; what the bundle shows of them; and their secrets."""
    from agent.cli.bundle.redaction import document_secrets, secrets_of

    secrets: list[str] = []
    try:
        document, _ = load.read(path)
        secrets += document_secrets(document)
        settings, shown = origins.read(path, os.environ)
    except ConfigurationError as error:
        return None, {"mistakes": [asdict(mistake) for mistake in error.mistakes]}, secrets
    return settings, [asdict(setting) for setting in shown], [*secrets, *secrets_of(settings)]


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(f"{FOLDER}/{name}")
    member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
    archive.addfile(member, io.BytesIO(content))
