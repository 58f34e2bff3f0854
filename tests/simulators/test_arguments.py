from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from simulators import cli, demo
from simulators.judge.command import main as judge
from simulators.report.command import main as report
from simulators.scenario import FaultKind, FaultTarget

Command = Callable[[Sequence[str], str], int]


@pytest.mark.parametrize("command", [judge, report])
@pytest.mark.parametrize("folder", [False, True], ids=["ledger", "folder"])
def test_a_ledger_that_is_not_there_is_wrong_usage(
    command: Command, folder: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path if folder else tmp_path / "ledger.jsonl"
    assert command([str(source)], "sim") == 2
    assert f"sim: {tmp_path / 'ledger.jsonl'} does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(("word", "meant"), [("rn", "run"), ("reprot", "report"), ("--versoin", None), ("xyz", None)])
def test_a_mistyped_command_names_the_nearest_one(
    word: str, meant: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["oncegate-sim", word])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    suggested = f"; did you mean {meant}?" if meant else "; see oncegate-sim --help"
    assert capsys.readouterr().err == f"oncegate-sim: unknown command {word!r}{suggested}\n"


def test_the_faults_of_a_seed_are_kills_of_agent_and_job_and_an_outage_of_the_broker() -> None:
    faults = demo.scenario(7, 240, 10_000, 3).faults
    assert faults == demo.scenario(7, 240, 10_000, 3).faults != demo.scenario(8, 240, 10_000, 3).faults
    kinds = {target: [one.kind for one in faults if one.target is target] for target in FaultTarget}
    assert kinds[FaultTarget.AGENT] == kinds[FaultTarget.JOB] == [FaultKind.KILL] * 3
    assert kinds[FaultTarget.KAFKA] == [FaultKind.DOWN]


@pytest.mark.parametrize(
    ("arguments", "sensors", "events"),
    [
        ([], 240, 10_000),
        (["--events", "3000"], 240, 3_000),
        (["--events", "50"], 5, 50),
        (["--events", "1"], 1, 1),
        (["--sensors", "1"], 1, 10_000),
        (["--sensors", "5000"], 5_000, 50_000),
        (["--sensors", "5", "--events", "50"], 5, 50),
        (["--sensors", "32768"], 32_768, 327_680),
    ],
)
def test_sensors_and_events_fit_together(arguments: list[str], sensors: int, events: int) -> None:
    scenario = demo.parse(arguments, "demo").scenario
    (plan,) = scenario.fleets
    assert plan.sensors == sensors
    assert sensors / plan.every_seconds <= demo.EVENTS_PER_SECOND + 1e-6
    assert scenario.seconds / plan.every_seconds * sensors == pytest.approx(demo.MORE * events)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--sensors", "6", "--events", "59"],
            "argument --sensors: 6 sensors need --events 60 at least, or no --events",
        ),
        (["--sensors", "32769"], "argument --sensors: at most 32768 are possible"),
        (["--sensors", "0"], "argument --sensors: at least 1 is needed"),
        (["--sensors", "many"], "argument --sensors: 'many' is no natural number"),
        (["--minutes", "-1"], "argument --minutes: '-1' is no natural number"),
        (["--events", "0"], "argument --events: at least 1 is needed"),
    ],
)
def test_numbers_that_do_not_fit_together_are_refused_with_what_would(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        demo.parse([f"{arguments[0]}={arguments[1]}", *arguments[2:]], "demo")
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"demo: error: {message}"
