"""The shell scripts, which run as root on gateways, have no finding of ShellCheck."""

import subprocess
from pathlib import Path

from simulators.services.install import programs
from tests.packaging.roots import CHECKOUT


def test_shellcheck_warns_of_nothing() -> None:
    packaging = [file for file in (CHECKOUT / "packaging").iterdir() if _is_script(file)]
    assert {"install.sh", "postinst", "postrm", "prerm"} <= {file.name for file in packaging}
    command: list[str | Path] = [programs.require("shellcheck"), "--severity=warning", *packaging]
    command.append(CHECKOUT / ".ci" / "run")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def _is_script(file: Path) -> bool:
    return file.is_file() and file.read_bytes().startswith(b"#!/bin/sh")
