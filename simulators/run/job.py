"""The Spark job of a local run, and its current stage according to its log."""

import re
from dataclasses import replace
from pathlib import Path

from simulators.services import spark
from simulators.services.process import Process
from simulators.services.service import ProcessService

WINDOW = "40s"
"""Short enough that the job processes fresh events and, after an outage, late ones."""
TRIGGER = "1s"
START_SECONDS_MAX = 600.0
"""Long enough for a busy machine; a job that ends is noticed at once."""

_ROOT = Path(__file__).resolve().parents[2]
_JOB = _ROOT / "cloud" / "job.py"
_LAUNCH = _ROOT / "simulators" / "launch.py"
_STAGE = re.compile(r"\bbatch=\d+ stage=(\S+)")
_READS = "cloud.stream.progress query="
_BETWEEN = frozenset({"receipt", "done"})
"""The stages after which a batch is over."""


class Job(ProcessService):
    """A job that keeps its table and checkpoint across restarts."""

    def __init__(self, folder: Path, log_file: Path, bootstrap_servers: str, patches: tuple[str, ...] = ()) -> None:
        """Prepare the job; `patches` are MODULE:FUNCTION, see simulators/launch.py."""
        self.table = folder / "table"
        self.checkpoint = folder / "checkpoint"
        ends = ("--bootstrap-servers", bootstrap_servers, "--table", str(self.table))
        pace = ("--checkpoint", str(self.checkpoint), "--window", WINDOW, "--trigger", TRIGGER)
        folder.mkdir(parents=True)
        options = spark.SparkOptions(packages=("contract", "cloud"))
        script, before = (_LAUNCH, ("job", *patches, "--")) if patches else (_JOB, ())
        command = spark.command(script, (*before, *ends, *pace), folder, options)
        environment = {**command.environment, "PYTHONPATH": str(_ROOT)}
        self.process = Process(replace(command, log_file=log_file, environment=environment))

    def start(self) -> None:
        """Start the job and return at once."""
        self.process.start()

    def wait(self) -> None:
        """Wait until the job reads the topic."""
        self.process.wait_for_log(_READS, START_SECONDS_MAX)

    @property
    def reads(self) -> bool:
        """Whether the job reads the topic."""
        return _READS in self.process.log()

    @property
    def in_a_batch(self) -> bool:
        """Whether the job is in the middle of a batch."""
        stages = _STAGE.findall(self.process.log())
        return bool(stages) and stages[-1] not in _BETWEEN
