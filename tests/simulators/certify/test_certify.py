"""certify on real consumers: those of the project are clean, and mistakes are found."""

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cloud.examples import PROGRAMS, database
from simulators.certify.command import main
from simulators.services import spark
from simulators.services.error import ServiceError
from simulators.services.install import programs
from simulators.services.postgres import Postgres
from tests.support.quick_start import QUICK_START

pytestmark = [pytest.mark.heavy, pytest.mark.kafka]

ROOT = Path(__file__).resolve().parents[3]
TABLES = (
    "SELECT fingerprint, CAST(NULL AS int) AS kafka_partition, CAST(NULL AS bigint) AS kafka_offset FROM {topic} "
    "UNION ALL SELECT NULL, kafka_partition, kafka_offset FROM {topic}_quarantine"
)
ENDS = ("--bootstrap-servers", "{bootstrap_servers}", "--topic", "{topic}", "--group", "{group}")
QUICK = ("--kafka", "session.timeout.ms=6000", "--kafka", "heartbeat.interval.ms=500")
OF_ONE_INSTANCE = ("--faults", "kill,restart,broker,malformed,aborted,retention,truncation,topic")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with Postgres(tmp_path_factory.mktemp("postgres")) as opened:
        yield opened


class Certify:
    """The command, on a consumer whose result is in PostgreSQL unless another is named."""

    def __init__(self, folder: Path, server: Postgres, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.server, self._capsys = folder, server, capsys
        self.connection = server.write_connection(folder / "connection")
        passwords = folder / "connection.pgpass"
        self.result = f"postgresql://oncegate@127.0.0.1:{server.port}/postgres?passfile={passwords}"

    def run(self, options: tuple[str, ...], command: tuple[str, ...], query: str = TABLES) -> dict[str, Any]:
        """Return the verdict, whose faults are counts."""
        ends = ("--result", self.result, "--query", query, "--folder", str(self.folder / "run"), "--json")
        status = main([*ends, *options, "--", *command], "certify")
        printed = self._capsys.readouterr()
        print(printed.err, file=sys.stderr)
        verdict: dict[str, Any] = json.loads(printed.out)
        assert (status == 0) == verdict["clean"]
        return verdict | {"faults": {name: len(events) for name, events in verdict["faults"].items()}}

    def consumer(self, *mutant: str) -> tuple[str, ...]:
        program = ("simulators.launch", "consumer", *mutant, "--") if mutant else ("cloud.consumer",)
        table = ("--connection", str(self.connection), "--table", "{topic}")
        return (sys.executable, "-m", *program, *ENDS, *table, *QUICK)

    def job(self, *sink: str) -> tuple[str, ...]:
        job = spark.command(ROOT / "cloud" / "job.py", (*ENDS, *sink), self.folder, spark.SparkOptions())
        checkpoint = ("--checkpoint", f"{self.folder}/checkpoint-{{topic}}", "--trigger", "1s", "--window", "1h")
        variables = [f"{name}={value}" for name, value in {**job.environment, **QUICK_START}.items()]
        return ("env", *variables, *job.arguments, *checkpoint)


@pytest.fixture
def certify(tmp_path: Path, server: Postgres, capsys: pytest.CaptureFixture[str]) -> Certify:
    return Certify(tmp_path, server, capsys)


@pytest.mark.guarantee(5)
def test_the_consumer_without_spark_is_clean(certify: Certify) -> None:
    verdict = certify.run((), certify.consumer())
    assert (verdict["faults"], verdict["notes"]) == ({}, [])


@pytest.mark.guarantee(5)
@pytest.mark.spark
@pytest.mark.parametrize("sink", ["delta", "postgres"])
def test_the_job_is_clean(certify: Certify, sink: str) -> None:
    options: tuple[str, ...] = ("--sink", "postgres", "--connection", str(certify.connection), "--table", "{topic}")
    if sink == "delta":
        certify.result = f"delta:{certify.folder}/tables"
        options = ("--table", f"{certify.folder}/tables/{{topic}}")
    verdict = certify.run((*OF_ONE_INSTANCE, "--kills", "2", "--events", "200", "--wait", "600"), certify.job(*options))
    assert (verdict["faults"], verdict["notes"]) == ({}, [])


@pytest.mark.guarantee(5)
@pytest.mark.parametrize("language", ["go", "java"])
def test_the_examples_are_clean(certify: Certify, language: str) -> None:
    try:
        program = PROGRAMS[language]()
    except ServiceError as error:
        pytest.skip(str(error))
    query = (
        "SELECT id AS fingerprint, CAST(NULL AS int) AS kafka_partition, CAST(NULL AS bigint) AS kafka_offset "
        'FROM {topic}.events UNION ALL SELECT NULL, partition, "offset" FROM {topic}.quarantine'
    )
    schema = f'{programs.require("psql")} "{certify.result}" --quiet --command "CREATE SCHEMA IF NOT EXISTS {{topic}}"'
    ends = ("-brokers", "{bootstrap_servers}", "-topic", "{topic}", "-group", "{group}")
    line = shlex.join((*program, *ends, "-database", database(certify.server, language, "{topic}")))
    verdict = certify.run(OF_ONE_INSTANCE, ("sh", "-c", f"{schema} && exec {line}"), query)
    assert (verdict["faults"], verdict["notes"]) == ({}, [])


@pytest.mark.parametrize(
    ("mutant", "faults"),
    [
        ("commits_before_the_work", "kill"),
        ("first_too_low", "retention"),
        ("ignores_a_truncation", "truncation"),
        ("ignores_the_topic_id", "topic"),
    ],
)
def test_a_mutant_is_found(certify: Certify, mutant: str, faults: str) -> None:
    command = certify.consumer(f"tests.simulators.certify.mutants:{mutant}")
    assert "premature" in certify.run(("--faults", faults), command)["faults"]


@pytest.mark.parametrize(
    ("mistake", "note"),
    [
        ("does-nothing", "no receipt has come for 10 s"),
        ("never-commits", "no receipt has come for 10 s"),
        ("commits-plain-offsets", "committed by a foreign consumer, by a reset, or in another form"),
        ("crashes", "ended with status 1, 3 times without a receipt in between"),
    ],
)
def test_a_consumer_without_receipts_is_told_why(certify: Certify, mistake: str, note: str) -> None:
    certify.result = f"jsonl:{certify.folder}/{{topic}}.jsonl"
    script = Path(__file__).with_name("small_consumer.py")
    command = (sys.executable, str(script), mistake, f"{certify.folder}/{{topic}}.jsonl")
    options = ("--faults", "topic", "--events", "40", "--wait", "10")
    verdict = certify.run(options, command, "SELECT fingerprint FROM result")
    assert "missing" in verdict["faults"]
    assert note in " ".join(verdict["notes"])
