"""`oncegate-sim run` against a running gateway, and `report`, as command lines."""

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest

from cloud.postgres.statements import Statements
from contract.event import Event
from simulators import ledger
from simulators.errors import RunError
from simulators.evidence.postgres import PostgresError
from simulators.evidence.row import Row
from simulators.judge.remote import judge_remote_run
from simulators.judge.sink import Sink
from simulators.ledger import Acked, Begun, Reported
from simulators.payloads import device_name, devices_of
from simulators.run.options import parse
from simulators.run.services import empty_folder
from simulators.services.postgres import Postgres
from tests.simulators.oracle.delta_tables import write_table
from tests.simulators.oracle.judged_field import row_of, write_ledger_of
from tests.simulators.run.minimal_gateway import minimal_gateway
from tests.simulators.test_report import write_ledger
from tests.support.commands import run
from tests.support.waiting import until

SCENARIO = """
name = "small"
description = "Whether it works."
seconds = {seconds}
[[fleets]]
kind = "coap"
sensors = 5
every_seconds = 0.2
[link]
answer_loss = 0.2
"""


def _command(tmp_path: Path, port: int, seconds: float) -> list[str]:
    (tmp_path / "small.toml").write_text(SCENARIO.format(seconds=seconds))
    target = f"coap://[::1]:{port}"
    places = ("--ledger", str(tmp_path / "out.jsonl"), "--folder", str(tmp_path / "run"))
    run = ("run", str(tmp_path / "small.toml"), "--target", target, "--seed", "7", *places)
    return [sys.executable, "-m", "simulators.cli", *run]


async def _run(command: Sequence[str], interrupted: Path | None = None) -> tuple[int | None, str]:
    """Run to the end, or interrupt once the ledger has acks; return the status and the output."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        if interrupted is not None:
            await until(lambda: interrupted.exists() and b'"acked"' in interrupted.read_bytes(), "there are acks")
            process.send_signal(signal.SIGINT)
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, output.decode()


async def test_a_gateway_that_is_there_is_tested_and_what_is_unknown_is_said(tmp_path: Path) -> None:
    async with minimal_gateway() as gateway:
        status, output = await _run(_command(tmp_path, gateway.address[1], 1.5))
    assert status == 1, output
    assert "No table was read" in output
    lines = list(ledger.read(tmp_path / "out.jsonl"))
    assert isinstance(lines[0], Begun)
    assert lines[0].run["seed"] == 7
    reported = sum(isinstance(line, Reported) for line in lines)
    assert reported == sum(isinstance(line, Acked) for line in lines) > 10
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert (verdict["acked"], verdict["kept"]) == (reported, False)
    assert "Field test: small" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.guarantee(0)
async def test_a_gateway_that_answers_nobody_is_no_verdict_and_no_success(tmp_path: Path) -> None:
    async with minimal_gateway(lambda _: []) as gateway:
        (tmp_path / "deaf.toml").write_text(SCENARIO.format(seconds=1).replace("[[", "settle_seconds = 1\n[[", 1))
        command = _command(tmp_path, gateway.address[1], 1)
        status, output = await _run([str(tmp_path / "deaf.toml") if "small" in word else word for word in command])
    assert status == 1, output
    assert "No verdict" in output
    assert "unacked" in output


async def test_an_interrupt_gives_the_report_so_far(tmp_path: Path) -> None:
    async with minimal_gateway() as gateway:
        status, output = await _run(_command(tmp_path, gateway.address[1], 600), tmp_path / "out.jsonl")
    assert status == 130, output
    assert "No table was read" in output
    assert "interrupted" in output
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["quiet-house"], "either --local or at least one --target"),
        (["quiet-house", "--local", "--target", "coap://x"], "either --local or at least one --target"),
        (["quiet-house", "--target", "coap://x"], "need --target http://HOST"),
        (["lossy", "--local"], "no file and no scenario 'lossy'"),
        (["lost-acks", "--target", "udp://x"], "is no coap://HOST"),
        (["lost-acks", "--local", "--seed", "-1"], "no natural number"),
        (["lost-acks", "--target", "coap://x", "--table", "t", "--kafka", "k:1"], "not allowed with argument --table"),
        (["lost-acks", "--target", "coap://x", "--kafka-properties", "f"], "--kafka-properties requires --kafka"),
        (["lost-acks", "--target", "coap://x", "--standstill", "-1"], "is no number from 0 on"),
        (["quiet-house", "--target", "coap://x", "--target", "http://x", "--token-file", "none"], "--token-file: "),
    ],
)
def test_wrong_usage_says_why(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments, "oncegate-sim run")
    assert ended.value.code == 2
    assert complaint in " ".join(capsys.readouterr().err.split())


def test_a_folder_of_somebody_else_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(RunError, match="choose another"):
        empty_folder(tmp_path)
    assert (tmp_path / "precious").exists()
    empty_folder(tmp_path / "mine")
    (tmp_path / "mine" / "old").touch()
    empty_folder(tmp_path / "mine")
    assert not (tmp_path / "mine" / "old").exists()


def _played(file: Path, number: int) -> list[Row]:
    """Write the ledger of a run of two devices, and return the rows that must exist."""
    events = [Event(device_name(index, number), id=count) for count in range(3) for index in range(2)]
    write_ledger_of(file, events, {"devices": devices_of(number)})
    return [row_of(event, count, f"epoch {number}") for count, event in enumerate(events)]


@pytest.mark.guarantee(0)
def test_a_run_is_judged_by_its_own_devices_on_a_table_in_use(tmp_path: Path) -> None:
    first, second = (_played(tmp_path / f"{number}.jsonl", number) for number in (1, 2))
    others = [row_of(Event("urn:dev:mac:00158d0001a2b3c4", id=17), 90)] * 2
    write_table(tmp_path / "table", [*first, *others, *second])
    sink = Sink(table=tmp_path / "table")
    for number in (1, 2):
        verdict = judge_remote_run(tmp_path / f"{number}.jsonl", sink)
        assert (verdict.faults, verdict.rows) == ({}, 6)
    write_table(tmp_path / "table", second[:1])
    assert judge_remote_run(tmp_path / "1.jsonl", sink).kept
    assert judge_remote_run(tmp_path / "2.jsonl", sink).faults == {"doubled": 1}


def test_the_table_in_postgresql_is_read_as_the_job_writes_it(tmp_path: Path) -> None:
    file = write_ledger(tmp_path)
    events = [line.event for line in ledger.read(file) if isinstance(line, Reported)]
    statements = Statements("plant.events", "plant.quarantine")
    with Postgres(tmp_path / "postgres") as server:
        connection = server.write_connection(tmp_path / "connection")
        with psycopg.connect(server.connection) as opened:
            opened.execute("CREATE SCHEMA plant")
            opened.execute(statements.create_table)
            for number, event in enumerate(events):
                opened.execute(
                    "INSERT INTO plant.events (fingerprint, device, type, id, data, epoch, sequence, processed_at)"
                    " VALUES (%s, %s, %s, %s, %s, 'e', %s, now())",
                    (number.to_bytes(16), event.device, event.type, str(event.id), json.dumps(event.data), number),
                )
        sink = Sink(postgres=connection, postgres_table="plant.events")

        verdict = judge_remote_run(file, sink)
        assert (verdict.kept, verdict.rows) == (True, 30)

        with psycopg.connect(server.connection) as opened:
            opened.execute("DELETE FROM plant.events WHERE id = '7'")
        assert judge_remote_run(file, sink).lost == 1

        with pytest.raises(PostgresError, match="does not exist"):
            judge_remote_run(file, Sink(postgres=connection, postgres_table="none"))


def test_without_the_packages_of_the_simulators_one_sentence_says_what_to_install() -> None:
    hidden = "import sys; sys.modules['rich'] = None; sys.argv[1:] = ['run', '--help']; "
    done = run(sys.executable, "-c", hidden + "from simulators.cli import main; main()")
    assert (done.returncode, done.stderr) == (1, "oncegate-sim: rich is not installed; run: pip install '.[sim]'\n")
