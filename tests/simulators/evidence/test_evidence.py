import json
from pathlib import Path

from deltalake import DeltaTable

from contract.event import Event
from simulators.evidence import delta
from simulators.evidence.row import Row
from tests.simulators.oracle.delta_tables import write_table
from tests.simulators.oracle.judged_field import NOW, TABLE, row_of

GATEWAYS_OWN = row_of(Event("urn:oncegate:gateway:g", "gateway.started", id="00ff"))
SENSORS = [
    Row(TABLE[0].device, "reading", "17", None, {"temperature": 21.5}, "2", "e", 2, 0, 6, "02", NOW, "gw1"),
    Row(TABLE[1].device, "alarm", None, NOW + 7, {"of": [1, {"a": "ü"}]}, None, "e", 3, 1, 7, "03", NOW, "gw2"),
]


def test_a_table_on_disk_is_read_as_it_is(tmp_path: Path) -> None:
    write_table(tmp_path, [GATEWAYS_OWN, *SENSORS])
    fingerprints = [str(row.fingerprint).encode().hex() for row in SENSORS]
    expected = [row._replace(fingerprint=name) for row, name in zip(SENSORS, fingerprints, strict=True)]
    assert list(delta.read(tmp_path)) == expected
    write_table(tmp_path, [GATEWAYS_OWN, *SENSORS])
    assert len(list(delta.read(tmp_path))) == 4


def test_a_table_that_is_not_there_has_no_rows(tmp_path: Path) -> None:
    assert list(delta.read(tmp_path / "none")) == []


def test_rows_of_commits_that_the_log_has_forgotten_count_at_the_first_that_it_has(tmp_path: Path) -> None:
    for row in (GATEWAYS_OWN, *SENSORS):
        write_table(tmp_path, [row])
    log = tmp_path / "_delta_log"
    for commit in sorted(log.glob("*.json")):
        note_rows(commit, 1)
    assert [count for _, count in delta.read_commits(tmp_path)] == [1, 1, 1]
    times = [time for time, _ in delta.read_commits(tmp_path)]
    DeltaTable(tmp_path).create_checkpoint()
    (log / f"{0:020}.json").unlink()
    assert delta.read_commits(tmp_path) == [(times[1], 2), (times[2], 1)]


def note_rows(commit: Path, count: int) -> None:
    """Note in a commit how many rows it has added, as Spark does."""
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["operationMetrics"] = {"numOutputRows": str(count)}
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
