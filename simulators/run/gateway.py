"""The agent of a local run: the installed command, its configuration, its clock, and its status."""

import json
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simulators import launch
from simulators.errors import RunError
from simulators.scenario import GatewayPlan, LanePlan
from simulators.services import ports
from simulators.services.process import Command, Process
from simulators.services.service import ProcessService

READY = "agent=ready"
LISTENS = "mqtt=connected"
COMMAND_SECONDS_MAX = 60
_CLOCK_PATCH = "simulators.launch:shift_clock"
_LOG_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """The settings of an agent that a run may choose."""

    id: str = "gw1"
    plan: GatewayPlan = field(default_factory=GatewayPlan)
    fake_clock: bool = False
    """Whether the wall clock can be set (launch.py)."""
    delivery: str | None = None
    mqtt_port: int | None = None
    mappings: Mapping[str, str] = field(default_factory=dict)
    """Names of mappings, with the topics of the messages that they read."""
    patches: tuple[str, ...] = ()
    """MODULE:FUNCTION, see simulators/launch.py."""


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """The fields of `oncegate status` that a run uses."""

    accepted: int
    duplicates: int
    new: int
    forwarded: int

    @property
    def outbox(self) -> int:
        """The number of events without a receipt."""
        return self.new + self.forwarded


class Gateway(ProcessService):
    """An agent on ports of its own that keeps its state across restarts."""

    def __init__(
        self, folder: Path, log_file: Path, bootstrap_servers: str, options: GatewayOptions | None = None
    ) -> None:
        self.options = options or GatewayOptions()
        (port,) = ports.free(1, socket.SOCK_DGRAM)
        (http_port,) = ports.free(1)
        self.address = ("127.0.0.1", port)
        self.http_address = ("127.0.0.1", http_port)
        self._folder = folder
        self._program = str(Path(sys.executable).with_name("oncegate"))
        self._config = folder / "oncegate.toml"
        folder.mkdir(parents=True)
        self._config.write_text(self._settings(bootstrap_servers))
        self.process = Process(Command("agent", self._command(), log_file, folder, self._environment()))

    def start(self) -> None:
        """Start the agent and return once it accepts events."""
        self.process.start()
        self.process.wait_for_log(READY)
        if self.options.mqtt_port is not None:
            self.process.wait_for_log(LISTENS)

    def status(self) -> GatewayStatus:
        """Return the status from the store, whether the agent runs or not."""
        command = [self._program, "status", "--json", "--config", str(self._config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS_MAX)
        if done.returncode != 0:
            raise RunError(f"oncegate status ended with {done.returncode}: {done.stderr.strip()}")
        status = json.loads(done.stdout)
        events = status["events"]
        return GatewayStatus(status["accepted"], status["duplicates"], events["new"], events["forwarded"])

    def set_clock(self, offset_seconds: float) -> None:
        """Set the offset of the agent's wall clock from now on."""
        if not self.options.fake_clock:
            raise RunError("the agent was not started with a clock that can be set")
        # Replaced atomically: the agent may read it at any moment.
        written = self._folder / "clock.new"
        written.write_text(f"{round(offset_seconds * 1000)}\n")
        written.replace(self._folder / "clock")

    def limit_disk(self, *, full: bool) -> None:
        """Limit the size of the agent's files (EFBIG), with a small margin for its log, or lift the limit.

        The log begins anew, since the limit is that of each file.
        """
        _, hard = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
        if full:
            self.process.rotate_log()
        limit = _LOG_BYTES if full else hard
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (limit, hard))

    def back_up(self) -> None:
        """Stop the agent, and copy the card."""
        self.stop()
        shutil.rmtree(self._backup, ignore_errors=True)
        shutil.copytree(self.state, self._backup)

    def restore(self) -> None:
        """Replace the card by its copy; the agent must not run."""
        if not self._backup.exists():
            raise RunError("there is no copy of the card: a fault `backup` must precede `restore`")
        shutil.rmtree(self.state)
        shutil.copytree(self._backup, self.state)

    @property
    def state(self) -> Path:
        """The folder of the agent's state: its card."""
        return self._folder / "state"

    @property
    def _backup(self) -> Path:
        return self._folder / "backup"

    def _command(self) -> tuple[str, ...]:
        run = ("run", "--config", str(self._config))
        patches = self.options.patches
        if self.options.fake_clock:
            patches = (_CLOCK_PATCH, *patches)
        if not patches:
            return (self._program, *run)
        return (sys.executable, "-m", "simulators.launch", "agent", *patches, "--", *run)

    def _environment(self) -> dict[str, str]:
        environment = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        if self.options.fake_clock:
            self.set_clock(0)
            environment[launch.CLOCK_VARIABLE] = str(self._folder / "clock")
        return environment

    def _settings(self, bootstrap_servers: str) -> str:
        # A TOML basic string is written as a JSON string is.
        options, plan = self.options, self.options.plan
        mqtt = f'\n[mqtt]\nenabled = true\nhost = "127.0.0.1"\nport = {options.mqtt_port}\n'
        for mapping, topic in options.mappings.items():
            mqtt += f'[[mqtt.subscriptions]]\ntopic = "{topic}"\nformat = "{mapping}"\n'
        delivery = "" if options.delivery is None else f'delivery = "{options.delivery}"\n'
        cap = f'bytes_per_second_max = "{plan.bytes_per_second_max}"\n' if plan.bytes_per_second_max else ""
        lanes = "".join(map(_lane, plan.lanes))
        return f"""\
[gateway]
id = "{options.id}"
state_dir = {json.dumps(str(self.state))}
clock = "{plan.clock}"

[coap]
bind = "{self.address[0]}:{self.address[1]}"

[http]
bind = "{self.http_address[0]}:{self.http_address[1]}"
{mqtt if options.mqtt_port is not None else ""}
[store]
max_bytes = "{plan.store_max_bytes}"

[kafka]
bootstrap_servers = "{bootstrap_servers}"
{delivery}{cap}
[receipts]
poll_seconds = 1
{lanes}"""


def _lane(lane: LanePlan) -> str:
    table = f'name = "{lane.name}"\npriority = {lane.priority}\ndevice = {json.dumps(lane.device)}\n'
    return f"\n[[forward.lanes]]\n{table}"
