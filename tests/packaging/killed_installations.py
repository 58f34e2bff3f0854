"""Installations with one fault: killed right before a change, or a change that fails; at first, and as an upgrade.

    python -m tests.packaging.killed_installations [--scenario first|upgrade] [--fault EIO] [--all] [--part 1/8]

Without --all only a few of the changes of documents, and of the removal of the old packages, are among them. Only our
own package is installed, from a wheel without dependencies: pip builds beside the destination, and moves each package
there. The counts are printed as JSON; the progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

from rich.console import Console

from simulators.display import Display
from tests.packaging.roots import CHECKOUT
from tests.support import changes
from tests.support.changes import Fault

SCENARIOS = ("first", "upgrade")
MANY = ("usr/local/share/", "opt/oncegate.new/lib/")
"""Where nearly all of the changes are, which are alike."""
EVERY = 100
"""Of those, every so many belong to the usual selection."""
OPERATORS = '[gateway]\nid = "gw1"\n'
BUILD_SECONDS_MAX = 600
CONFIGURATION, UNIT = "etc/oncegate/oncegate.toml", "etc/systemd/system/oncegate.service"
LIBRARY = "opt/oncegate"

Tree = Mapping[str, str | bytes]
"""The files below a folder: contents, and where links lead to."""


class Installations:
    """Installs again and again into folders below one."""

    def __init__(self, work: Path, scenario: str) -> None:
        self._work = work
        self._destination = work / "destination"
        self._base = work / "base"
        self.log = work / "log"
        pure = _pure_wheel(work)
        self._new = _marked(pure, work / "new", "new")
        if scenario == "upgrade":
            self._install(_marked(pure, work / "old", "old"))
            (self._destination / CONFIGURATION).write_text(OPERATORS)
            self._destination.rename(self._base)
        else:
            self._base.mkdir()
        self._before = tree(self._base)
        self._reset()
        run = changes.run(self._command, self._destination, self._environment(self._new), self.log)
        if run.status:
            raise RuntimeError(self.log.read_text())
        self.changes = run.changes
        operators = {name: content for name, content in self._before.items() if name == CONFIGURATION}
        self._after = {**tree(self._destination), **operators}

    def fail_at(self, number: int, fault: Fault) -> list[str]:
        """Kill an installation right before a change, or let that fail, and install again; return what is wrong."""
        self._reset()
        run = changes.run(self._command, self._destination, self._environment(self._new), self.log, number, fault)
        wrong = self._judge(run, fault)
        self._install(self._new)
        wrong += [f"{name} differs after the next installation" for name in self._differing(tree(self._destination))]
        return [f"{fault} at {self.changes[number]}: {one}" for one in wrong]

    def _judge(self, run: changes.Run, fault: Fault) -> list[str]:
        """Return what is wrong right after an installation."""
        now = tree(self._destination)
        if fault is Fault.KILL:
            if run.status >= 0:
                return [f"the change did not come: the installation ended with status {run.status}"]
            return self._judge_parts(now)
        if run.status == 0:  # what has failed is repeated, or of no account
            return [f"{name} differs, although the installation reports no error" for name in self._differing(now)]
        if fault is Fault.SHORT:
            return [f"status {run.status}, although half a write is no error: {self.log.read_text()}"]
        text = "" if self.log.read_text().strip() else f"status {run.status} without a message"
        return [*filter(None, [text]), *self._judge_parts(now)]

    def _differing(self, now: Tree) -> list[str]:
        names = now.keys() | self._after.keys()
        return sorted(name for name in names if now.get(name) != self._after.get(name))

    def selection(self, fault: Fault, *, everything: bool) -> list[int]:
        """Return the numbers of the changes that can have a fault, without `everything` those that differ."""
        begins = tuple(f"{self._destination}/{folder}" for folder in MANY)
        alike = [number for number, one in enumerate(self.changes) if one.partition(" ")[2].startswith(begins)]
        left_out = set() if everything else {*alike} - {*alike[::EVERY]}
        every = enumerate(self.changes)
        return [number for number, one in every if number not in left_out and changes.can_have(one, fault)]

    def _judge_parts(self, now: Tree) -> list[str]:
        """Return what is neither old nor new."""
        wrong = [
            f"{name} is neither the old nor the new one"
            for name in (CONFIGURATION, UNIT)
            if now.get(name) not in (self._before.get(name), self._after.get(name))
        ]
        if self._part(now) not in (self._part(self._before), self._part(self._after)):
            wrong.append(f"{LIBRARY} is neither the old nor the new one")
        return wrong

    @staticmethod
    def _part(files: Tree) -> Tree:
        return {name: content for name, content in files.items() if name.startswith(f"{LIBRARY}/")}

    @property
    def _command(self) -> tuple[str, ...]:
        return "sh", str(CHECKOUT / "packaging" / "install.sh")

    def _environment(self, wheel: Path) -> dict[str, str]:
        made = {"DESTDIR": str(self._destination), "WHEEL": str(wheel), "TMPDIR": str(self._work / "temporary")}
        tools = {"PIP": f"{sys.executable} -m pip", "PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
        unbuffered = {"PYTHONUNBUFFERED": "1"}  # as in many a container: a print is one write, whose rest is lost
        return {**os.environ, **made, **tools, **unbuffered, "PIP_NO_INDEX": "1"}

    def _install(self, wheel: Path) -> None:
        (self._work / "temporary").mkdir(exist_ok=True)
        done = subprocess.run(
            self._command,
            env=self._environment(wheel),
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_SECONDS_MAX,
        )
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)

    def _reset(self) -> None:
        for folder in (self._destination, self._work / "temporary"):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._base, self._destination, symlinks=True)
        (self._work / "temporary").mkdir()
        self.log.unlink(missing_ok=True)


def tree(folder: Path) -> Tree:
    """Read all files below a folder."""
    found: dict[str, str | bytes] = {}
    for path in folder.rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(folder))] = str(path.readlink())
        elif path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def _pure_wheel(work: Path) -> Path:
    done = subprocess.run(
        ["sh", str(CHECKOUT / "packaging" / "wheel.sh"), str(work / "pure")],
        env={**os.environ, "ONCEGATE_COMPILE": "0", "PIP": f"{sys.executable} -m pip"},
        capture_output=True,
        text=True,
        check=True,
        timeout=BUILD_SECONDS_MAX,
    )
    return Path(done.stdout.strip())


def _marked(wheel: Path, folder: Path, mark: str) -> Path:
    """Write a wheel without dependencies that differs from others in one file; return it."""
    folder.mkdir()
    with ZipFile(wheel) as pure, ZipFile(folder / wheel.name, "w") as marked:
        for name in pure.namelist():
            content = pure.read(name)
            if name.endswith("/METADATA"):
                content = b"".join(one for one in content.splitlines(keepends=True) if b"Requires-Dist" not in one)
            elif name == "contract/__init__.py":
                content += f"# {mark}\n".encode()
            marked.writestr(name, content)
    return folder / wheel.name


def run(
    scenario: str, part: int, parts: int, display: Display, fault: Fault = Fault.KILL, *, everything: bool = False
) -> tuple[dict[str, object], list[str]]:
    """Run one part of the installations, each with a fault; return the counts, and what is wrong."""
    with tempfile.TemporaryDirectory(prefix="installations-") as name:
        display.phase(f"{scenario}: one installation without a kill, whose changes are counted")
        installations = Installations(Path(name), scenario)
        numbers = installations.selection(fault, everything=everything)[part - 1 :: parts]
        display.phase(f"{scenario}: {fault} at {len(numbers):,} changes, each with another installation after it")
        wrong: list[str] = []
        for done, number in enumerate(numbers):
            display.count(done, len(numbers), f"{done:,} of {len(numbers):,} done, {len(wrong)} faults found")
            wrong += installations.fail_at(number, fault)
        return {
            "scenario": scenario,
            "fault": fault,
            "changes": len(installations.changes),
            "made": len(numbers),
        }, wrong


def main() -> None:
    """Run the scenarios, print the counts, and exit with 1 where anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.packaging.killed_installations", description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS)
    parser.add_argument("--fault", type=Fault, choices=list(Fault), default=Fault.KILL)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--part", default="1/1", help="such as 3/8: every 8th change, from the third on")
    arguments = parser.parse_args()
    part, parts = map(int, arguments.part.split("/"))
    failed = False
    for scenario in [arguments.scenario] if arguments.scenario else SCENARIOS:
        with Display(Console(stderr=True)) as display:
            counts, wrong = run(scenario, part, parts, display, arguments.fault, everything=arguments.all)
        print("\n".join([json.dumps(counts), *wrong]), flush=True)
        failed = failed or bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
