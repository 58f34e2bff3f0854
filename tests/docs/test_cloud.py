"""docs/cloud.md and docs/table.md agree with the programs, and their commands of Spark work."""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from cloud.cli.commands import COMMANDS, Engine
from cloud.jars import coordinates, ivy, java
from cloud.relay import RelayMetrics
from cloud.session import PARQUET, SETTINGS
from cloud.stream.metrics import JobMetrics
from tests.docs.pages import ROOT
from tests.support.commands import output_of

PAGE = (ROOT / "docs" / "cloud.md").read_text()
TABLE = (ROOT / "docs" / "table.md").read_text()
SPARK_SQL = re.search(r"^spark-sql .*$", TABLE, re.MULTILINE)
RUNS_IN_SPARK = {
    Engine.ALWAYS: "yes",
    Engine.FILES: "but for PostgreSQL",
    Engine.SESSION: "but for PostgreSQL",
    Engine.NEVER: "no",
}


@pytest.mark.parametrize(
    ("page", "registry"), [("cloud", JobMetrics(None).registry), ("relay", RelayMetrics(None).registry)]
)
def test_the_metrics_of_the_page_are_those_of_the_program(page: str, registry: CollectorRegistry) -> None:
    shown = {f"{family.name}_total" if family.type == "counter" else family.name for family in registry.collect()}
    text = (ROOT / "docs" / f"{page}.md").read_text()
    assert set(re.findall(rf"^\| `(oncegate_{page}_\w+)[{{`]", text, re.MULTILINE)) == shown


def test_the_commands_of_the_page_are_those_of_the_program() -> None:
    shown = re.findall(r"^\| `oncegate-cloud (\w+)` \|.*\| ([a-zA-Z ]+) \|$", PAGE, re.MULTILINE)
    assert shown == [(command.name, RUNS_IN_SPARK[command.engine]) for command in COMMANDS.values()]


def test_statements_that_write_are_executed_with_the_settings_of_the_job() -> None:
    assert SPARK_SQL is not None
    words = shlex.split(SPARK_SQL[0])
    given = dict(words[place + 1].split("=", 1) for place, word in enumerate(words) if word == "--conf")
    assert given.pop("spark.sql.catalogImplementation") == "in-memory"  # else it makes a metastore in the folder
    assert given.pop("spark.ui.enabled") == "false"  # it would listen on every address
    settings = {**SETTINGS, **PARQUET}
    assert given == {name: settings[name] for name in given}
    assert {name for name in settings if name.startswith("spark.sql.parquet.") and "Write" in name} <= set(given)
    [delta] = [jar for jar in coordinates.read_lock()[coordinates.SPARK] if "delta-spark" in jar.coordinates.artifact]
    wanted = delta.coordinates
    assert words[words.index("--packages") + 1] == f"{wanted.group}:{wanted.artifact}:{wanted.version}"


@pytest.mark.heavy
@pytest.mark.spark
def test_the_command_of_the_tables_page_changes_a_delta_table(tmp_path: Path) -> None:
    assert SPARK_SQL is not None
    statements = (
        "CREATE TABLE delta.`/srv/oncegate/events` (device STRING, id STRING) USING delta",
        "INSERT INTO delta.`/srv/oncegate/events` VALUES ('urn:a', '1'), ('urn:b', '2')",
        "UPDATE delta.`/srv/oncegate/events` SET device = 'urn:oncegate:erased', id = NULL WHERE device = 'urn:a'",
        "SELECT concat(device, '/', coalesce(id, '-')) FROM delta.`/srv/oncegate/events` ORDER BY 1",
    )
    script = "; ".join(statements).replace("/srv/oncegate", str(tmp_path))
    line = SPARK_SQL[0].replace("spark-sql ", f"spark-sql {shlex.join(_mirror())} ", 1)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "JAVA_HOME": str(java.home(java.require()))}
    told = output_of("sh", "-euc", f"{line} -e {shlex.quote(script)}", cwd=tmp_path, environment=environment)
    assert told.splitlines()[-2:] == ["urn:b/2", "urn:oncegate:erased/-"]
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "spark-warehouse"] == ["events"]


def _mirror() -> list[str]:
    """Return the settings for a mirror, where this machine has one."""
    settings = ivy.settings()
    return ["--conf", f"spark.jars.ivySettings={settings}"] if settings else []
