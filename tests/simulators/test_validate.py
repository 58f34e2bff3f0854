"""What a run has seen of each device is compared with the model of the path, by the real TLC."""

import sys
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from contract.event import Event
from simulators import ledger
from simulators.evidence import topic
from simulators.evidence.row import Row
from simulators.evidence.topic import RECORDS_FILE, SavedRecordsError
from simulators.ledger import Ledger, LedgerError
from simulators.validate.command import fitting, fitting_steps
from simulators.validate.traces import STRANGE, Step, Trace, collect
from tests.simulators.oracle.delta_tables import write_table
from tests.simulators.oracle.judged_field import row_of
from tests.support import commands

DEVICE, NEIGHBOUR = "urn:dev:mac:0000000000000001", "urn:dev:mac:0000000000000002"
BEGIN = 1_763_706_000_000


def event(device: str, number: int) -> Event:
    return Event(device, id=number, data={"t": number})


def written(folder: Path, devices: Sequence[str] = (DEVICE, NEIGHBOUR), events: int = 4) -> Path:
    """Write the ledger of sensors that send each second event twice; return the file."""
    moments = count(BEGIN, 10)
    with Ledger(folder / "ledger.jsonl", lambda: next(moments)) as lines:
        lines.begin({"seed": 1})
        for number in range(1, events + 1):
            for device in devices:
                mark = lines.reported(event(device, number))
                lines.sent(mark)
                if number % 2 == 0:
                    lines.sent(mark, again=True)
                lines.acked(mark)
        lines.end()
    return folder / "ledger.jsonl"


def rows(*numbers: int, device: str = DEVICE, at: int = BEGIN + 10_000) -> list[Row]:
    """Return rows of one partition from these events, the first with offset 0."""
    found = [row_of(event(device, number), number) for number in numbers]
    return [row._replace(partition=0, offset=offset, at=at) for offset, row in enumerate(found)]


Seen = tuple[Sequence[Row] | None, Sequence[Row] | None]
"""Records and rows."""


def which_fit(ledger_file: Path, *seen: Seen) -> list[bool]:
    """Return which of these records and rows fit the ledger."""
    return fitting([collect(ledger.read(ledger_file), *one).by_device[DEVICE] for one in seen])


def changed(trace: Trace) -> Iterator[Trace]:
    """Yield the trace with each step left out, repeated, and exchanged with the next, where none of that may happen.

    A sensor may send an event any number of times, its last ACK may be lost, and a record may be repeated at any time.
    """
    last = max((at for at, step in enumerate(trace) if step.event == "acked"), default=-1)
    for at, step in enumerate(trace):
        before, after = trace[:at], trace[at + 1 :]
        if at != last and (step.event not in ("sent", "record") or step not in (*before, *after)):
            yield (*before, *after)
        if step.event in ("acked", "row"):
            yield (*before, step, step, *after)
        if after and after[0] not in before and _depends(step, after[0]):
            yield (*before, after[0], step, *after[1:])


def _depends(step: Step, following: Step) -> bool:
    """Whether the second can only come after the first; rows are in no order, and records need no ACK."""
    if {step.event, following.event} <= {"sent", "acked"}:
        return step != following
    return step.event == following.event == "record" and step.position < following.position


def test_a_trace_fits_and_each_one_with_a_step_changed_does_not(tmp_path: Path) -> None:
    file = written(tmp_path, (DEVICE,))
    records = rows(1, 2, 1, 2, 3, 4)
    table = [*records[:2], *records[4:]]
    trace = collect(ledger.read(file), records, table).by_device[DEVICE]
    assert [step.event for step in trace].count("record") == 6
    others = list(changed(trace))
    assert len(others) > 25
    found = fitting([trace, *others])
    assert [one for one, fit in zip(others, found[1:], strict=True) if fit] == []
    assert found[0]


def test_records_and_rows_fit_as_forwarder_and_job_write_them(tmp_path: Path) -> None:
    right: list[Seen] = [
        (rows(1, 2, 3, 4), None),
        (rows(1, 2, 1, 2, 3, 4, 4), None),
        (None, rows(1, 2, 3, 4)),
    ]
    wrong: list[Seen] = [
        (rows(1, 3, 2, 4), None),
        (rows(1, 2, 4), None),
        (rows(1, 2, 3, 4, 5), None),
        (rows(1, 2, 3, 4, at=BEGIN), None),  # before its request
        (None, rows(1, 2, 3)),
        (None, rows(1, 2, 2, 3, 4)),
        (None, rows(2, 1, 3, 4)),
        (rows(1, 2, 3, 4), []),
    ]
    assert which_fit(written(tmp_path), *right, *wrong) == [True] * len(right) + [False] * len(wrong)


def test_the_first_step_that_does_not_fit_is_found(tmp_path: Path) -> None:
    trace = collect(ledger.read(written(tmp_path)), None, rows(1, 3, 2, 4)).by_device[DEVICE]
    wrong = trace[fitting_steps(trace)]
    assert wrong == Step("record", 3)


def test_devices_that_the_model_does_not_describe_are_left_out(tmp_path: Path) -> None:
    moments = count(BEGIN)
    with Ledger(tmp_path / "ledger.jsonl", lambda: next(moments)) as lines:
        several = [lines.reported(event("several", number)) for number in range(2)]
        lines.sent(*several)
        lines.acked(*several)
        for _ in range(2):
            mark = lines.reported(Event("equal", data={"t": 1}))
            lines.sent(mark)
            lines.acked(mark)
        refused, silent = lines.reported(event("refused", 1)), lines.reported(event("silent", 1))
        lines.sent(refused)
        lines.refused(refused, code="4.00")
        lines.sent(silent)
    traces = collect(ledger.read(tmp_path / "ledger.jsonl"), None, [])
    assert [*traces.by_device] == ["silent"]
    assert sorted(traces.left_out) == [
        "an event was refused or given up",
        "sends several events at once",
        "two events are equal",
    ]


def test_a_row_that_no_sensor_has_sent_is_a_step(tmp_path: Path) -> None:
    trace = collect(ledger.read(written(tmp_path)), None, rows(1, 2, 3, 4, 9)).by_device[DEVICE]
    assert trace[-1] == Step("row", STRANGE, 4)
    assert fitting([trace]) == [False]


def test_saved_records_are_read_as_they_were(tmp_path: Path) -> None:
    records = rows(1, 2, 3)
    assert list(topic.saving(records, tmp_path / RECORDS_FILE)) == records
    assert list(topic.read_saved(tmp_path / RECORDS_FILE)) == records


@pytest.mark.parametrize("line", [b'["urn:dev:mac:0000000000000001","reading",1,n', b'["a","b"]\n', b"7\n"])
def test_a_saved_record_that_is_cut_off_or_none_is_an_error_with_its_line(tmp_path: Path, line: bytes) -> None:
    file = tmp_path / RECORDS_FILE
    list(topic.saving(rows(1, 2), file))
    file.write_bytes(file.read_bytes() + line)
    with pytest.raises(SavedRecordsError, match=f"{RECORDS_FILE}, line 3"):
        list(topic.read_saved(file))


def test_a_ledger_without_its_beginning_is_an_error(tmp_path: Path) -> None:
    file = written(tmp_path)
    beginning, first, *others = file.read_bytes().splitlines(keepends=True)
    assert first.startswith(b'{"event"')
    file.write_bytes(b"".join((beginning, *others)))
    with pytest.raises(LedgerError, match="event 1 was never reported"):
        collect(ledger.read(file), None, rows(1, 2, 3, 4))


def run(folder: Path, *arguments: str) -> commands.Completed:
    """Run the installed command in another folder than the checkout."""
    return commands.run(Path(sys.executable).with_name("oncegate-sim"), "validate", folder, *arguments, cwd=folder)


@pytest.mark.heavy
def test_the_command_validates_a_folder_and_names_what_does_not_fit(tmp_path: Path) -> None:
    written(tmp_path)
    write_table(tmp_path / "cloud" / "table", [*rows(1, 2, 3, 4), *rows(1, 2, 3, 4, device=NEIGHBOUR)])
    done = run(tmp_path)
    assert "2 devices compared, with 8 events in" in done.stdout, done
    assert done.returncode == 0
    write_table(tmp_path / "other", [*rows(1, 2, 4), *rows(1, 2, 3, 4, device=NEIGHBOUR)])
    done = run(tmp_path, "--table", str(tmp_path / "other"))
    assert f"{DEVICE}: does not fit" in done.stdout
    assert "1 do not fit the model" in done.stdout
    assert done.returncode == 1


def test_a_run_without_acks_is_no_success(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.jsonl", lambda: BEGIN) as lines:
        lines.sent(lines.reported(event(DEVICE, 1)))
    write_table(tmp_path / "cloud" / "table", [])
    done = run(tmp_path)
    assert "no result: no event of these devices was acked" in done.stdout, done
    assert done.returncode == 1
