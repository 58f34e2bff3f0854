"""Start jobs by spark-submit, from the pyspark of this environment and the cached jars."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from cloud.jars import ivy
from cloud.jars.coordinates import name_for
from simulators.services.install import jars, java
from simulators.services.process import Command, Process

_ROOT = Path(__file__).resolve().parents[2]
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Everything stays on this machine, and the web UI, which is not used, is off."""


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The resources of a job, and Spark settings in addition to those that `submit` sets."""

    cores: int = 2
    master: str | None = None
    """URL of a cluster; None for local mode with `cores` cores."""
    driver_megabytes: int = 1024
    settings: Mapping[str, str] = field(default_factory=dict)
    jar_sets: tuple[str, ...] = (jars.SPARK,)
    packages: tuple[str, ...] = ("contract", "cloud")
    """This project's packages that are sent with the job."""
    environment: Mapping[str, str] = field(default_factory=dict)
    home: Path = field(default_factory=ivy.pyspark_folder)
    """The folder of Spark."""
    sources: Path = _ROOT
    """The folder with this project's packages."""


def submit(job: Path, arguments: tuple[str, ...], folder: Path, options: SparkOptions | None = None) -> Process:
    """Start the job in the folder, which holds its log and temporary files, and return at once.

    `Process.kill` ends the JVM and the driver's Python together.
    """
    process = Process(command(job, arguments, folder.absolute(), options or SparkOptions()))
    process.start()
    return process


def command(job: Path, arguments: tuple[str, ...], folder: Path, options: SparkOptions) -> Command:
    """Return the command, after writing the archive of the packages into the folder."""
    temporary = folder / "temporary"
    temporary.mkdir(parents=True, exist_ok=True)
    archive = pack(options.packages, folder / "packages.zip", options.sources)
    line = [str(options.home / "bin" / "spark-submit"), "--master", options.master or f"local[{options.cores}]"]
    line += [
        "--driver-memory",
        f"{options.driver_megabytes}m",
        "--driver-java-options",
        f"-Djava.io.tmpdir={temporary} -XX:+UseParallelGC",  # a sixth faster than G1 with little memory
    ]
    paths = [str(jar) for of in options.jar_sets for jar in jars.paths(name_for(of, options.home))]
    line += ["--jars", ",".join(paths), "--py-files", str(archive)]
    for name, value in {**_SETTINGS, **options.settings}.items():
        line += ["--conf", f"{name}={value}"]
    line += [str(job.absolute()), *arguments]
    return Command(
        f"spark {job.stem}",
        tuple(line),
        folder / "spark.log",
        folder,
        {**_environment(temporary, options.home), **options.environment},
    )


def pack(packages: tuple[str, ...], archive: Path, sources: Path = _ROOT) -> Path:
    """Write the sources of packages into an archive, reproducibly."""
    with ZipFile(archive, "w") as opened:
        for package in packages:
            for source in sorted((sources / package).rglob("*.py")):
                opened.writestr(ZipInfo(str(source.relative_to(sources))), source.read_bytes())
    return archive


def _environment(temporary: Path, home: Path) -> dict[str, str]:
    return {
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(java.home(java.require())),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # The temporary files of a killed job are removed with its folder.
        "SPARK_LOCAL_DIRS": str(temporary),
        "TMPDIR": str(temporary),
    }
