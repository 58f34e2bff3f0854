"""A Debian system that boots: systemd in a container with this machine's network."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from simulators.services.install import programs
from simulators.services.process import Command, Process
from tests.packaging.roots import Root
from tests.support.waiting import wait_until

BOOT_SECONDS_MAX = 180.0
COMMAND_SECONDS_MAX = 120.0
INSTALLATION_SECONDS_MAX = 600.0
STATE_MEGABYTES = 64
_UNIT = "oncegate.service"
_AGAIN = 133
"""Exit status of systemd-nspawn at a reboot: with --keep-unit it leaves the next start to its caller."""


class Machine:
    """Boots a root with a small disk for the agent's state, which survives reboots."""

    def __init__(self, root: Root, folder: Path) -> None:
        self.root = root
        state = root.path("/var/lib/oncegate")
        script = (
            f"mount -t tmpfs -o size={STATE_MEGABYTES}m,mode=750 state {state} && chown --reference={root.folder}"
            f"/var/lib/oncegate.owner {state} && while {programs.require('systemd-nspawn')} --register=no --keep-unit"
            f" --boot --quiet --link-journal=no --resolv-conf=off --timezone=off -D {root.folder};"
            f" [ $? -eq {_AGAIN} ]; do :; done"
        )
        owner = root.path("/var/lib/oncegate.owner")
        owner.touch()
        shutil.copystat(state, owner)
        subprocess.run(["chown", f"--reference={state}", str(owner)], check=True)
        unshare = ("unshare", "--mount", "--propagation", "private", "sh", "-c", script)
        self.process = Process(Command("machine", unshare, folder / "machine.log"))

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.end)
            self.process.start()
            try:
                self.wait_until_up()
            except AssertionError as error:
                error.add_note(self.run("journalctl", "--no-pager", "--lines=50", check=False))
                raise
            stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Kill the machine, as a power cut would."""
        leader = self.leader()
        if leader is not None:
            subprocess.run(["kill", "-KILL", str(leader)], check=False)  # its processes end with it
        self.process.kill()

    def run(self, *command: str, check: bool = True, seconds_max: float = COMMAND_SECONDS_MAX) -> str:
        """Run a command on the machine."""
        done = subprocess.run(
            ["nsenter", "--target", str(self.leader()), "--all", *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds_max,
            stdin=subprocess.DEVNULL,
        )
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def show(self, name: str) -> str:
        """Return a property of the agent's unit; empty while the machine does not answer."""
        return self.run("systemctl", "show", "--value", "--property", name, _UNIT, check=False).strip()

    def main_pid(self) -> int:
        """Return the agent's pid in this machine's namespace."""
        inner = self.show("MainPID")
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            except OSError:
                continue  # it has ended
            numbers = lines.get("NSpid", "").split()
            if len(numbers) > 1 and numbers[-1] == inner and lines["Name"] != "systemd":
                return int(numbers[0])
        raise AssertionError(f"no process {inner} of the machine")

    def kill_agent(self) -> None:
        """Send SIGKILL to the agent."""
        subprocess.run(["kill", f"-{signal.SIGKILL.value}", str(self.main_pid())], check=True)

    def wait_until_up(self) -> None:
        """Wait until the agent is ready."""
        wait_until(self._is_up, "the agent is up on the machine", BOOT_SECONDS_MAX)

    def reboot(self) -> None:
        """Reboot, and wait until the agent is up again."""
        before = self.leader()
        self.run("systemctl", "reboot")
        wait_until(lambda: self.leader() not in (None, before), "the machine boots again", BOOT_SECONDS_MAX)
        self.wait_until_up()

    def leader(self) -> int | None:
        """Return the machine's first process: systemd, below systemd-nspawn, below the shell that restarts it."""
        for nspawn in _children(self.process.pid, "systemd-nspawn"):
            for leader in _children(nspawn, "systemd"):
                return leader
        return None

    def _is_up(self) -> bool:
        assert self.process.alive, self.process.log()
        return self.leader() is not None and self.show("ActiveState") == "active"


def _children(parent: int, name: str) -> Iterator[int]:
    """Yield the children of a process with this name."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            inside, _, fields = entry.read_text().rpartition(")")
        except OSError:
            continue  # it has ended
        if inside.partition("(")[2] == name and int(fields.split()[1]) == parent:
            yield int(entry.parent.name)
