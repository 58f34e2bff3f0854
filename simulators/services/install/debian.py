"""Installation of Debian packages where it is permitted."""

import os
import shutil
import subprocess

from simulators.services.error import ServiceError


def install(*packages: str) -> None:
    """Install packages as root or by sudo without a password; else raise ServiceError with the command to run."""
    apt, prefix = shutil.which("apt-get"), as_root()
    if apt is None or prefix is None:
        raise ServiceError(f"missing: {', '.join(packages)}; run: {by_hand(*packages)}")
    print(f"debian: installing {', '.join(packages)}", flush=True)
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
        command = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", apt, *arguments]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServiceError(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}".rstrip())


def by_hand(*packages: str) -> str:
    """Return the command that installs packages."""
    return f"sudo apt-get install {' '.join(packages)}"


def as_root() -> list[str] | None:
    """Return the prefix that runs a command as root; None where that is not permitted."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo is None or subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode != 0:
        return None
    return [sudo, "-n"]
