"""Run a program by spark-submit, with this project's packages and the pinned jars."""

import argparse
import hashlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from cloud import command_line
from cloud.jars import coordinates, download, ivy, java
from cloud.jars.coordinates import JarError
from contract import files
from contract.files import PrivateFileError, read_private

PACKAGES = ("contract", "cloud")
LOCAL = "local[*]"
_ROOT = Path(__file__).resolve().parents[2]
_S3 = ("s3:", "s3a:", "s3n:")
DEFAULTS = {
    "spark.log.level": "WARN",
    "spark.ui.enabled": "false",  # it would listen on every address, without a login
    "spark.ui.showConsoleProgress": "false",
    # Spark's own, and the credential of an Iceberg catalog: in its user interface and in the logs of its events.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|[.]credential$",
    # A sixth faster than G1 where memory is scarce.
    "spark.driver.defaultJavaOptions": "-XX:+UseParallelGC",
    "spark.executor.defaultJavaOptions": "-XX:+UseParallelGC",
}
_SECRET = re.compile(
    r"^(?!.*(file|path)$).*(secret|password|token|access\.?key|account\.key|\.credential$)", re.IGNORECASE
)
"""Matches names of secrets, and none of their files."""
_LOCAL_DEFAULTS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The options of Spark on the command line."""

    master: str = LOCAL
    deploy_mode: str | None = None
    driver_memory: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    properties_file: Path | None = None
    """File with further settings of Spark, which only its owner can read."""
    print_only: bool = False
    """Whether to print the command instead of running it."""

    @property
    def is_local(self) -> bool:
        """Whether Spark runs in one process."""
        return self.master.startswith("local")

    @property
    def in_cluster(self) -> bool:
        """Whether the driver runs on a machine of the cluster."""
        return self.deploy_mode == "cluster"


def add_options(group: argparse._ArgumentGroup) -> None:
    """Add the options."""
    add = group.add_argument
    setting = partial(command_line.open_property, secret=_SECRET, file_option="--properties-file")
    add("--master", default=LOCAL, metavar="URL", help="spark://…, yarn, k8s://…; default: %(default)s, this machine")
    add("--deploy-mode", choices=("client", "cluster"), help="where the driver runs; default: client, on this machine")
    add("--driver-memory", metavar="SIZE", help="memory of the driver, such as 2g; Spark's default is 1g")
    add("--conf", action="append", default=[], type=setting, metavar="NAME=VALUE", help="setting of Spark; repeatable")
    add(
        "--properties-file",
        type=_private_file,
        metavar="FILE",
        help="file with settings of Spark, which only its owner may read; for secrets such as "
        f"spark.hadoop.fs.s3a.secret.key; {files.CREDENTIAL}NAME as for --kafka-properties",
    )
    add("--print", action="store_true", dest="print_only", help="print the command of spark-submit, and do not run it")


def split(words: Sequence[str]) -> tuple[SparkOptions, list[str]]:
    """Separate the options of Spark from those of the program."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_options(parser.add_argument_group())
    given, own = parser.parse_known_args(words)
    return command_line.read(SparkOptions, given, conf=tuple(given.conf)), own


def command(file: Path, arguments: Sequence[str], options: SparkOptions, home: Path) -> list[str]:
    """Return the words of the command; downloads jars that the cache lacks, and writes the archive of the packages."""
    return [str(home / "bin" / "spark-submit"), *submit_options(arguments, options, home), str(file), *arguments]


def submit_options(arguments: Sequence[str], options: SparkOptions, home: Path) -> list[str]:
    """Return the options of spark-submit for a program with these arguments."""
    words = ["--master", options.master]
    if options.deploy_mode:
        words += ["--deploy-mode", options.deploy_mode]
    if options.driver_memory:
        words += ["--driver-memory", options.driver_memory]
    if options.properties_file:
        words += ["--properties-file", str(options.properties_file), "--load-spark-defaults"]
    defaults = {**DEFAULTS, **(_LOCAL_DEFAULTS if options.is_local else {})}
    settings = {**defaults, **dict(options.conf)}
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    if jars := jars_for(arguments, home):
        words += ["--jars", ",".join(map(str, jars))]
    return [*words, "--py-files", str(archive())]


def jars_for(arguments: Sequence[str], home: Path) -> list[Path]:
    """Return the pinned jars that this Spark lacks; those of S3 where an argument is in S3."""
    pinned = coordinates.read_lock()
    sets = [coordinates.SPARK]
    if any(word.partition("=")[2].startswith(_S3) or word.startswith(_S3) for word in arguments):
        sets.append(coordinates.S3A)
    if "--sink=iceberg" in arguments or ("--sink", "iceberg") in pairwise(arguments):
        sets.append(coordinates.ICEBERG)
    names = [coordinates.name_for(of, home) for of in sets]
    if coordinates.ICEBERG in names:
        raise JarError("Iceberg has no runtime for Spark 4.2 yet: set SPARK_HOME to a Spark 4.1")
    wanted = [jar for name in names for jar in pinned[name]]
    missing = [jar for jar in wanted if not (home / "jars" / jar.coordinates.file_name).is_file()]
    if new := download.missing_from(missing, download.folder_of_jars()):
        print(f"oncegate-cloud: downloading {len(new)} jars to {download.folder_of_jars()}, once", file=sys.stderr)
    return list(download.ensure(missing))


def home(environment: Mapping[str, str]) -> Path:
    """Return the folder of Spark: $SPARK_HOME, or else that of the installed pyspark."""
    chosen = environment.get("SPARK_HOME")
    folder = Path(chosen) if chosen else ivy.pyspark_folder()
    if not (folder / "bin" / "spark-submit").is_file():
        raise JarError(f"SPARK_HOME={folder}: there is no bin/spark-submit")
    return folder


def environment_of(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the environment of spark-submit; Python on the executors is this one, if nothing else is set."""
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    java_home = str(java.home(java.require(environment)))
    return {**python, **environment, "SPARK_HOME": str(home), "JAVA_HOME": java_home}


def archive() -> Path:
    """Return the archive of this project's packages, named by its content."""
    content = io.BytesIO()
    with ZipFile(content, "w", ZIP_DEFLATED) as opened:
        for package in PACKAGES:
            for source in sorted((_ROOT / package).rglob("*.py")):
                opened.writestr(ZipInfo(str(source.relative_to(_ROOT))), source.read_bytes(), ZIP_DEFLATED)
    data = content.getvalue()
    file = download.cache_folder() / "packages" / f"oncegate-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    if not file.exists():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as temporary:
                temporary.write(data)
            Path(temporary.name).chmod(0o644)
            Path(temporary.name).replace(file)  # at once, since another command may be using it
        except OSError as error:
            message = f"{file.parent}: {error.strerror}; set {download.VARIABLE} to a folder that can be written"
            raise JarError(message) from error
    return file


def prepare(arguments: Sequence[str], options: SparkOptions) -> None:
    """Set the environment for a Spark session that this process opens; its output is not mixed with Spark's log."""
    folder = home(os.environ)
    os.environ.update(environment_of(os.environ, folder))
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*submit_options(arguments, options, folder), "pyspark-shell"])


def run(file: Path, arguments: Sequence[str], options: SparkOptions) -> None:
    """Replace this process by spark-submit, which gets its signals."""
    folder = home(os.environ)
    environment = environment_of(os.environ, folder)
    words = command(file, arguments, options, folder)
    sys.stdout.flush()
    os.execve(words[0], words, environment)


def _private_file(text: str) -> Path:
    path = command_line.secret_path(text)
    try:
        read_private(path)
    except PrivateFileError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error}") from error
    return path
