"""A sensor kit that wakes, measures, sends over a bad radio, and sleeps; at times its power is cut."""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from agent.store.layout import FILE_NAME
from simulators.link.faults import link_profile
from simulators.link.udp import Link
from simulators.scenario import LinkPlan
from simulators.services.process import Process
from tests.support.agent_process import agent_process, configured, stored_documents, wait_until_ready

HOST = "127.0.0.1"
SEED = 20
ACK_TIMEOUT_MS = 30
LOSS = LinkPlan(request_loss=0.25, answer_loss=0.3, jitter_seconds=0.01)
CUT_SECONDS_MAX = 0.05
"""From the measurement to the cut, in which the kit sends."""
WAKINGS_MORE_MAX = 60
"""Wakings until there were enough cuts, and then until the queue is empty."""
Label = tuple[int, int]
"""Boot and id of an event."""


@dataclass(slots=True)
class Account:
    """What a kit has printed: its measurements, and those that a power cut may have taken from its memory."""

    measured: list[Label] = field(default_factory=list)
    stored: int = 0
    waiting: list[Label] = field(default_factory=list)
    taken: set[Label] = field(default_factory=set)
    refused: int = 0
    cuts: int = 0
    left: int | None = None
    """The kit's own count of waiting events, at the end of a waking; None after a cut."""

    def read(self, output: str) -> None:
        self.left = None
        for line in output.splitlines():
            match line.split():
                case ["measured", boot, number]:
                    self.measured.append((int(boot), int(number)))
                    self.waiting.append(self.measured[-1])
                case ["stored", count]:
                    self.stored += int(count)
                    del self.waiting[: int(count)]
                case ["refused", count]:
                    self.refused += int(count)
                case ["waiting", count]:
                    self.left = int(count)


async def wake(command: Sequence[str], folder: Path, cut_after: float | None = None) -> tuple[str, bool]:
    """Run a kit until it sleeps, or cut its power some seconds after its measurement.

    Return what it has printed, and whether the cut came before its sleep.
    """
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    output = await process.stdout.readline()
    cut = None if cut_after is None else asyncio.get_running_loop().call_later(cut_after, _kill, process)
    output += await process.stdout.read()
    status = await process.wait()
    if cut is not None:
        cut.cancel()
    assert status in ((0,) if cut_after is None else (0, -signal.SIGKILL)), output.decode()
    return output.decode(), status != 0


async def live(
    commands: Sequence[str],
    folder: Path,
    port: int,
    configuration: Path,
    device: str,
    *,
    wakings: int,
    cuts: int,
    keeps_memory: bool = True,
) -> Account:
    """Wake a kit behind a bad radio, with some power cuts, and then until nothing waits; return its account.

    `{port}` in the command is the link's port. The account is compared with the events in the agent's store.
    """
    random, account = Random(SEED), Account()
    cut = set(random.sample(range(wakings), cuts))
    async with Link([(HOST, port)], link_profile(LOSS), SEED, (HOST, 0)) as link:
        command = [part.replace("{port}", str(link.address[1])) for part in commands]
        (folder / "settings.json").write_text(_settings(link.address[1]))

        async def wake_once(with_cut: bool) -> None:
            output, was_cut = await wake(command, folder, random.uniform(0, CUT_SECONDS_MAX) if with_cut else None)
            account.read(output)
            account.cuts += was_cut
            if was_cut and not keeps_memory:
                account.taken.update(account.waiting)
                account.waiting.clear()

        for number in range(wakings):
            await wake_once(number in cut)
        for _ in range(WAKINGS_MORE_MAX):
            if account.cuts >= cuts and account.left == 0:
                break
            await wake_once(account.cuts < cuts)
        assert link.traffic["requests lost"] + link.traffic["answers lost"] > cuts
    assert len(account.measured) >= wakings - cuts
    found = Counter(events(configuration, device))
    assert account.left == 0, f"seed {SEED}: the queue is not empty after {account.cuts} cuts"
    assert account.refused == 0
    assert [label for label in account.measured if label not in found and label not in account.taken] == [], "lost"
    assert {label: count for label, count in found.items() if count > 1} == {}, "doubled"
    return account


def events(configuration: Path, device: str) -> list[Label]:
    """Return boot and id of each event of a device in the store."""
    found = stored_documents(configuration.with_name("state") / FILE_NAME)
    return [(event["boot"], event["id"]) for event in found if event["device"] == device]


@contextmanager
def agent(configuration: Path, more: str = "") -> Iterator[Process]:
    """Run an agent whose events stay in its store."""
    with agent_process(configured(configuration.parent, more, coap=f"{HOST}:0", http="")) as process:
        process.start()
        process.wait_for_log("agent=ready")
        yield process


def coap_port(process: Process) -> int:
    return wait_until_ready(process)["coap"]


def _settings(port: int) -> str:
    return json.dumps(
        {"gateway": HOST, "port": port, "device": "urn:kit:micropython", "ack_timeout_ms": ACK_TIMEOUT_MS}
    )


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a process without asking for its status, which its watcher would then not get: it would report 255."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
