"""`oncegate doctor --measure`: this machine's disk, and figures of others."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.cli.doctor import measure as measuring
from agent.cli.doctor.measure import MeasureError, Measurement, Stored, measure
from tests.support.agent_process import configured

SHORT = 0.05
CARD = Measurement(
    machine="Raspberry Pi 4 Model B Rev 1.4, aarch64",
    version="oncegate 0.1.0 pure",
    disk="ext4 on mmcblk0 SC32G 31.9 GB",
    capacity_bytes=31_914_983_424,
    flush_median=0.00312,
    flush_99=0.0121,
    flush_max=0.0434,
    single=Stored(280.4, 9_100.0),
    pack=Stored(6_123.0, 260.0),
)


def test_a_disk_is_measured_and_nothing_is_left_behind(tmp_path: Path) -> None:
    found = measure(tmp_path, SHORT)
    assert 0 < found.flush_median <= found.flush_99 <= found.flush_max
    assert 0 < found.single.events_per_second < found.pack.events_per_second
    assert found.version.startswith("oncegate ")
    assert list(tmp_path.iterdir()) == []


def test_years_are_those_of_the_bytes_written() -> None:
    years = CARD.years(CARD.single)
    assert years == pytest.approx(31_914_983_424 * 250 / 9_100 / 31_557_600)
    assert CARD.years(CARD.single, 10.0) == pytest.approx((years or 0) / 10)


def test_without_the_size_of_the_disk_or_its_bytes_there_are_no_years() -> None:
    sizeless = Measurement("m", "v", "overlay on x", None, 1e-5, 1e-5, 1e-5, Stored(1, 10), Stored(2, 1))
    assert sizeless.line().endswith("| 10 B or 1 B written an event")
    assert sizeless.doubtful
    assert not CARD.doubtful
    assert Measurement("m", "v", "d", 1, 1, 1, 1, Stored(1, 0), Stored(2, 0)).line().endswith("in packs of 100")


def test_a_disk_that_cannot_be_measured_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MeasureError, match="there is no such folder; the agent makes it"):
        measure(tmp_path / "none", SHORT)
    monkeypatch.setattr(measuring, "FREE_BYTES_MIN", 1 << 62)
    with pytest.raises(MeasureError, match="are free"):
        measure(tmp_path, SHORT)


def test_the_command_prints_one_line_or_json(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    (tmp_path / "state").mkdir()
    code = "from agent.cli import main; from agent.cli.doctor import measure as m; m.measure.__defaults__ = (0.05,)"
    code += "; main.main()"
    command = (sys.executable, "-c", code, "doctor", "--measure", "--config", str(configuration))
    line = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    assert line.count(" | ") >= 4
    found = json.loads(subprocess.run((*command, "--json"), capture_output=True, text=True, check=True).stdout)
    assert found["single"]["events_per_second"] > 0
    assert found["pack_events"] == 100
