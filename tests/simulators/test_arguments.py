"""The options that the commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from simulators import cli
from simulators.judge.command import main as judge
from simulators.report.command import main as report

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
