"""The units, verified by systemd itself."""

import configparser
import re
from pathlib import Path

import pytest

from simulators.services.install import programs
from tests.support.commands import Completed, run

FOLDER = Path(__file__).resolve().parents[2] / "systemd"
EXPOSURE_MAX = 1.5
UNITS = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".service", ".timer"))
SERVICES = [unit for unit in UNITS if unit.endswith(".service")]


def analyze(*arguments: str) -> Completed:
    return run(programs.require("systemd-analyze"), *arguments)


def read(unit: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys as they stand
    parser.read(FOLDER / unit)
    return parser


@pytest.mark.parametrize("unit", SERVICES)
def test_a_service_is_exposed_no_more_than_it_may_be_and_leaves_no_core(unit: str) -> None:
    done = analyze("security", "--offline=true", "--no-pager", str(FOLDER / unit))
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) <= EXPOSURE_MAX
    assert read(unit)["Service"]["LimitCORE"] == "0"


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_no_mistake_in_a_unit(unit: str, tmp_path: Path) -> None:
    for file in UNITS:  # systemd does not check programs that are not installed here
        text = (FOLDER / file).read_text().replace("/usr/bin/oncegate", "/bin/true")
        (tmp_path / file).write_text(text.replace("Documentation=file:", "#"))
    done = analyze("verify", "--man=no", str(tmp_path / unit))
    said = [line for line in done.stderr.splitlines() if "oncegate" in line]
    assert said == []


def test_it_is_restarted_for_ever_and_watched() -> None:
    unit = read("oncegate.service")
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    service = unit["Service"]
    assert (service["Type"], service["Restart"]) == ("notify", "always")
    assert int(service["WatchdogSec"]) > 0
    assert "network-online" not in (FOLDER / "oncegate.service").read_text()
    assert "time-sync" not in (FOLDER / "oncegate.service").read_text()


@pytest.mark.parametrize("unit", SERVICES)
def test_no_secret_is_in_the_environment_or_on_the_command_line(unit: str) -> None:
    service = read(unit)["Service"]
    assert service["LoadCredential"].startswith("secret:/etc/oncegate/")
    assert "Environment" not in service
    assert "--log-level" not in service["ExecStart"]


@pytest.mark.parametrize("name", ["audit", "cloud", "maintenance"])
def test_the_cloud_units_wait_for_a_synchronised_clock(name: str) -> None:
    lines = (FOLDER / f"oncegate-{name}.service").read_text().splitlines()
    assert {"Wants=time-sync.target systemd-time-wait-sync.service", "After=time-sync.target"} <= set(lines)


def test_maintenance_runs_once_a_day() -> None:
    times = analyze("calendar", "--iterations=3", read("oncegate-maintenance.timer")["Timer"]["OnCalendar"]).stdout
    days = re.findall(r"\d{4}-\d\d-(\d\d) 03:30:00 UTC", times)
    assert len(set(days)) == 3


@pytest.mark.parametrize("timer", [unit for unit in UNITS if unit.endswith(".timer")])
def test_a_timer_has_its_service(timer: str) -> None:
    assert timer.replace(".timer", ".service") in UNITS
