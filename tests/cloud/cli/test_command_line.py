"""The command `oncegate-cloud`: its words, its help, and the command of spark-submit that it makes."""

import hashlib
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID
from zipfile import ZipFile

import pytest

from cloud.cli import commands, spark
from cloud.cli.commands import COMMANDS, parse
from cloud.jars import coordinates, download, ivy
from cloud.jars.coordinates import Jar
from contract.receipt import GROUP_DEFAULT
from tests.support.commands import Completed, output_of, run

PROGRAM = Path(sys.executable).parent / "oncegate-cloud"
PINNED = coordinates.read_lock()[coordinates.SPARK]
JOB = ("job", "--bootstrap-servers", "k:9092", "--table", "events", "--checkpoint", "checkpoint")
ICEBERG = ("maintenance", "--sink", "iceberg", "--catalog", "c")


def call(*words: str, **environment: str) -> Completed:
    return run(PROGRAM, *words, environment=environment)


def submitted(*words: str, **environment: str) -> list[str]:
    return shlex.split(output_of(PROGRAM, *words, "--print", environment=environment))


def value(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def test_the_installed_program_tells_its_version_and_lists_its_commands() -> None:
    assert call("--version").stdout.startswith("oncegate-cloud 0.")
    shown = call("--help").stdout
    for name in COMMANDS:
        assert f"\n  {name} " in shown
    assert "examples:" in shown
    done = call(*JOB, "--chekpoint", "c")
    assert (done.returncode, done.stdout, "did you mean --checkpoint?" in done.stderr) == (2, "", True)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_a_help_with_an_example_and_the_exit_status(name: str) -> None:
    shown = commands.command_parser(COMMANDS[name]).format_help()
    assert f"\n  oncegate-cloud {name} --" in shown.replace("\n    oncegate", "\n  oncegate")
    assert "exit status:" in shown.lower()
    assert ("--master URL" in shown) == (COMMANDS[name].engine is not commands.Engine.NEVER)


KAFKA = ("--bootstrap-servers", "k:9092")
TABLE = (*KAFKA, "--table", "t")
TRACED, NAMED = ("trace", *TABLE), "1876d2e5f34f91105e52555b000b5edc"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("adit",), "unknown command 'adit'; did you mean audit?"),
        (("job", "--chekpoint", "c"), "unknown argument --chekpoint; did you mean --checkpoint?"),
        (("query", "--tabel=x", "SELECT 1"), "unknown argument --tabel; did you mean --table?"),
        (("--master", "local", "job"), "unknown option --master; the options of a command follow its name"),
        ((*JOB, "--conf", "spark.log.level"), "'spark.log.level' is not NAME=VALUE"),
        ((*JOB, "--window", "1s"), "a window of less than 4 seconds is too short"),
        (
            (*JOB, "--succeeds", ",".join([str(UUID(int=0))] * 109)),
            "4032 characters of table ids; a receipt has room for 4006",
        ),
        (("query", "--table", "t", "SELECT 1", "--deploy-mode", "cluster"), "the driver runs here, too"),
        ((*JOB, "--master", "spark://h:7077", "--deploy-mode", "cluster"), "Spark runs a Python driver only here"),
        (("maintenance", "--table", "t", "--sink", "postgres"), "--sink postgres requires --connection FILE"),
        (("maintenance", "--table", "t", "--sink", "iceberg"), "--sink iceberg requires --catalog FILE"),
        (("maintenance", "--table", "t", "--catalog", "c"), "--catalog FILE is not for --sink delta"),
        ((*ICEBERG, "--table", "t"), "--table: 't' is not a name in a namespace such as plant.events"),
        ((*ICEBERG, "--table", "a.t", "--quarantine", "a.b.c"), "--quarantine: 'a.b.c' is not a name in a namespace"),
        (("maintenance", "--table", "t", "--retain", "6d"), "--retain"),
        (("maintenance", "--table", "t", "--retain", "soon"), "--retain"),
        *(
            ((*JOB, *wrong), wrong[0])
            for wrong in (
                *(("--quarantine", "events"), ("--retention", "0s"), ("--window", "soon"), ("--kafka", "ssl")),
                *(("--max-offsets-per-trigger", "0"), ("--succeeds", "a:b"), ("--sink", "postgres")),
                *(("--connection", "/c"), ("--metrics", "9464"), ("--change-feed", "0s")),
            )
        ),
        (("audit", *TABLE, "--output", "o", "--sink", "postgres"), "--connection"),
        *(
            (("consumer", *TABLE, "--connection", "c", *wrong), wrong[0])
            for wrong in (("--table", "a b"), ("--commit", "auto"), ("--succeeds", "a:b"))
        ),
        *(
            (("relay", *KAFKA, *wrong), "--group")
            for wrong in ((), ("--group", "g", "--group", "g"), ("--group", GROUP_DEFAULT))
        ),
        *(
            ((*TRACED, *wrong), "expected a fingerprint")
            for wrong in ((), (NAMED[1:],), ("gw-1", NAMED[:16]), ("gw-1", NAMED[:16], "0"), ("gw-1", "epoch", "1"))
        ),
        ((*TRACED, NAMED, "--since", "2026-05-01"), "require --device"),
        ((*TRACED, "--device", "d"), "--device requires --since"),
        ((*TRACED, "--device", "d", "--since", "soon"), "is not a time"),
        ((*TRACED, "--device", "d", "--since", "2026-05-01", "--until", "2026-05-01"), "must be after --since"),
        ((*TRACED, NAMED, "--records", "0"), "--records"),
    ],
)
def test_wrong_usage_is_refused(words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(words)
    assert (ended.value.code, told in capsys.readouterr().err) == (2, True)


def test_spark_gets_the_packages_and_the_pinned_jars() -> None:
    words = submitted(*JOB)
    assert words[:3] == [str(ivy.pyspark_folder() / "bin" / "spark-submit"), "--master", "local[*]"]
    with ZipFile(value(words, "--py-files")) as opened:
        assert {"cloud/job.py", "cloud/stream/batch.py", "contract/record.py"} <= set(opened.namelist())
    jars = {Path(jar) for jar in value(words, "--jars").split(",")}
    sums = {hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars}
    assert sums == {jar.sha256 for jar in PINNED}
    assert words[words.index("--py-files") + 2 :] == [str(COMMANDS["job"].file), *JOB[1:]]
    assert "spark.driver.bindAddress=127.0.0.1" in words


def test_options_of_spark_may_stand_anywhere_and_override_the_defaults() -> None:
    words = submitted(
        *("job", "--master", "spark://s:7077", *JOB[1:3], "--driver-memory", "2g"),
        *(*JOB[3:], "--conf", "spark.log.level=INFO", "--deploy-mode", "client"),
    )
    assert (value(words, "--master"), value(words, "--driver-memory")) == ("spark://s:7077", "2g")
    assert "spark.log.level=INFO" in words
    assert "spark.log.level=WARN" not in words
    assert "spark.driver.bindAddress=127.0.0.1" not in words  # executors must reach the driver
    assert words[-6:] == list(JOB[1:])


def test_a_secret_of_spark_is_refused_as_an_argument_and_taken_from_a_private_file(tmp_path: Path) -> None:
    secret = "spark.hadoop.fs.s3a.secret.key"
    done = call(*JOB, "--conf", f"{secret}=never-shown")
    assert (done.returncode, "never-shown" in done.stderr) == (2, False)
    assert f"{secret} is a secret: it belongs in the file of --properties-file" in done.stderr
    file = tmp_path / "spark"
    file.write_text(f"{secret}=never-shown\n")
    file.chmod(0o640)
    assert call(*JOB, "--properties-file", str(file)).returncode == 2
    file.chmod(0o600)
    words = submitted(*JOB, "--properties-file", str(file), "--conf", "spark.ssl.keyStorePasswordFile=/a")
    assert value(words, "--properties-file") == str(file)
    assert not any("never-shown" in word for word in words)


def test_files_that_only_the_driver_in_the_cluster_has_are_not_read_here() -> None:
    options = ("--kafka-properties", "/absent/kafka")
    assert call(*JOB, *options, "--print").returncode == 2
    words = submitted(*JOB, *options, "--master", "yarn", "--deploy-mode", "cluster")
    assert words[-2:] == list(options)


def install_spark(folder: Path, version: str = "4.2.0") -> None:
    """Create what the program looks for in an installation of Spark."""
    own = (f"jars/spark-core_2.13-{version}.jar", *(f"jars/{jar.coordinates.file_name}" for jar in PINNED))
    for name in ("bin/spark-submit", *own):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_jars_that_a_spark_installation_has_are_not_sent(tmp_path: Path) -> None:
    install_spark(tmp_path)
    words = submitted(*JOB, SPARK_HOME=str(tmp_path))
    assert words[0] == str(tmp_path / "bin" / "spark-submit")
    assert "--jars" not in words


def test_a_spark_home_without_spark_is_named(tmp_path: Path) -> None:
    done = call(*JOB, SPARK_HOME=str(tmp_path))
    assert done.returncode == 1
    assert f"SPARK_HOME={tmp_path}: there is no bin/spark-submit" in done.stderr


def test_each_line_of_spark_gets_its_jars_and_another_is_named(tmp_path: Path) -> None:
    install_spark(tmp_path / "older", "4.1.3")
    words = submitted(*JOB, SPARK_HOME=str(tmp_path / "older"))
    assert "delta-spark_4.1_2.13" in words[words.index("--jars") + 1]
    install_spark(tmp_path / "oldest", "4.0.5")
    done = call(*JOB, SPARK_HOME=str(tmp_path / "oldest"))
    assert done.returncode == 1
    assert "Spark 4.0 is not supported; use 4.1 or 4.2, or the installed pyspark" in done.stderr


def test_the_credential_of_a_catalog_is_a_secret(tmp_path: Path) -> None:
    install_spark(tmp_path, "4.2.0")
    name = "spark.sql.catalog.oncegate.credential"
    [redacted] = [word for word in submitted(*JOB, SPARK_HOME=str(tmp_path)) if word.startswith("spark.redaction.")]
    assert re.search(redacted.partition("=")[2], name)
    done = call(*JOB, "--conf", f"{name}=never-shown")
    assert done.returncode == 2
    assert f"{name} is a secret" in done.stderr


def test_a_cache_that_cannot_be_written_is_named_with_its_variable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    install_spark(tmp_path / "home")
    done = call(*JOB, "--print", **{download.VARIABLE: str(tmp_path / "file"), "SPARK_HOME": str(tmp_path / "home")})
    assert done.returncode == 1
    assert f"set {download.VARIABLE} to a folder that can be written" in done.stderr


@pytest.mark.parametrize("words", [("--sink", "iceberg"), ("--sink=iceberg",)])
def test_iceberg_needs_the_line_of_spark_for_which_it_has_a_runtime(words: tuple[str, ...], tmp_path: Path) -> None:
    catalog = tmp_path / "catalog"
    catalog.touch(mode=0o600)
    words = (*JOB[:3], *words, "--catalog", str(catalog), "--table", "db.events", "--checkpoint", "c")
    install_spark(tmp_path / "older", "4.1.3")
    line = submitted(*words, SPARK_HOME=str(tmp_path / "older"))
    assert "iceberg-spark-runtime-4.1_2.13" in line[line.index("--jars") + 1]
    install_spark(tmp_path / "newer", "4.2.0")
    done = call(*words, SPARK_HOME=str(tmp_path / "newer"))
    assert done.returncode == 1
    assert "Iceberg has no runtime for Spark 4.2 yet: set SPARK_HOME to a Spark 4.1" in done.stderr


@pytest.mark.parametrize("place", ["s3a://plant/events", "s3://plant/events"])
def test_a_table_in_s3_needs_the_connector(place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.2.0.jar").touch()
    asked: list[int] = []

    def note(jars: Sequence[Jar]) -> tuple[Path, ...]:
        asked.append(len(jars))
        return ()

    monkeypatch.setattr("cloud.jars.download.ensure", note)
    spark.jars_for(["--table", place], tmp_path)
    spark.jars_for([f"--table={place}"], tmp_path)
    spark.jars_for(["--table", "events"], tmp_path)
    both = len(PINNED) + len(coordinates.read_lock()[coordinates.S3A])
    assert asked == [both, both, len(PINNED)]


def test_in_postgresql_maintenance_and_query_need_no_spark(tmp_path: Path) -> None:
    connection = tmp_path / "connection"
    connection.touch(mode=0o600)
    sink = ("--sink", "postgres", "--connection", str(connection), "--table", "events")
    assert commands.parse(["maintenance", *sink]).spark is None
    assert commands.parse(["query", *sink, "SELECT 1"]).spark is None
    assert commands.parse(["job", *JOB[1:3], *sink, "--checkpoint", "c"]).spark is not None


def test_nothing_beside_the_programs_hides_a_module_of_the_standard_library() -> None:
    # spark-submit puts the programs' folder first on the path.
    assert {path.stem for path in COMMANDS["job"].file.parent.iterdir()} & sys.stdlib_module_names == set()


UNITS = Path(__file__).resolve().parents[3] / "systemd"


def words_of(command: str) -> list[str]:
    """Expand the variables as systemd does: each is split at spaces, and an empty one is no argument."""
    lines = (UNITS / "cloud.env.example").read_text().splitlines()
    environment = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    unit = (UNITS / f"oncegate-{command}.service").read_text()
    [start] = [line for line in unit.splitlines() if line.startswith("ExecStart=/usr/bin/env $ONCEGATE_CLOUD ")]
    return " ".join(environment[word[1:]] if word.startswith("$") else word for word in start.split()[2:]).split()


@pytest.mark.parametrize("command", ["cloud", "audit", "maintenance", "consumer@"])
def test_a_unit_starts_a_command_that_is_accepted(command: str) -> None:
    names = {"cloud": "job", "consumer@": "consumer"}
    assert parse(words_of(command)).command.name == names.get(command, command)


def test_the_audit_may_write_to_the_places_of_the_template() -> None:
    lines = (UNITS / "oncegate-audit.service").read_text().splitlines()
    assert "ProtectSystem=strict" in lines
    [names] = [line.removeprefix("StateDirectory=").split() for line in lines if line.startswith("StateDirectory=")]
    folders = [Path("/var/lib", name) for name in names]
    words = words_of("audit")
    places = {option: Path(words[words.index(option) + 1]) for option in ("--output", "--report", "--metrics-file")}
    assert all(any(place.is_relative_to(folder) for folder in folders) for place in places.values())
    assert places["--metrics-file"].parent in folders  # systemd creates it, for all to read


@pytest.mark.parametrize("name", [name for name in COMMANDS if COMMANDS[name].engine is not commands.Engine.NEVER])
def test_the_file_that_spark_is_given_runs_the_command(name: str) -> None:
    file = COMMANDS[name].file
    environment = {"PYTHONPATH": str(file.parents[len(COMMANDS[name].module.split(".")) - 1])}
    assert f"usage: oncegate-cloud {name}" in output_of(sys.executable, file, "--help", environment=environment)
