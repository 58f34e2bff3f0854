import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from contract.event import Event
from simulators.ledger import (
    Acked,
    Begun,
    GivenUp,
    Happened,
    Ledger,
    LedgerError,
    Refused,
    Reported,
    Sampled,
    Sent,
    read,
)

EVENT = Event("urn:dev:mac:02005e0000000001", "alarm", id=7, boot=2, data={"open": True, "temperature": 21.5})


def test_what_is_written_is_read_back_in_order(tmp_path: Path) -> None:
    moments = iter(range(100, 200))
    with Ledger(tmp_path / "ledger.jsonl", lambda: next(moments)) as ledger:
        ledger.begin({"seed": 7})
        first, second, third = (
            ledger.reported(EVENT),
            ledger.reported(Event("d", time=5)),
            ledger.reported(Event("d", data={})),
        )
        ledger.sent(first)
        ledger.sent(second, third)
        ledger.sent(second, again=True, time=9)
        ledger.acked(first)
        ledger.refused(second, code="4.00")
        ledger.given_up(third)
        ledger.happened("agent", "killed")
        ledger.sample({"new": 3})

    assert list(read(tmp_path / "ledger.jsonl")) == [
        Begun(100, {"seed": 7}),
        Reported(101, 1, EVENT),
        Reported(102, 2, Event("d", time=5)),
        Reported(103, 3, Event("d", data={})),
        Sent(104, 1),
        Sent(105, 2),
        Sent(105, 3),
        Sent(106, 2, again=True, time=9),
        Acked(107, 1),
        Refused(108, 2, "4.00"),
        GivenUp(109, 3),
        Happened(110, "agent", "killed"),
        Sampled(111, {"new": 3}),
    ]


def test_the_ledger_of_another_run_is_never_changed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text("truth\n")
    with pytest.raises(FileExistsError), Ledger(path, lambda: 0):
        pass
    assert path.read_text() == "truth\n"


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, lambda: 0) as ledger:
        ledger.sent(ledger.reported(EVENT))
    path.write_bytes(path.read_bytes()[:-3])
    assert list(read(path)) == [Reported(0, 1, EVENT)]


@pytest.mark.parametrize(
    "line", ["{}", '{"at":1}', '{"at":1,"sold":3}', '{"event":1,"at":0}', "nonsense", "[]", "null"]
)
def test_a_line_that_is_no_entry_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"sent":1,"at":0}\n' + line + "\n")
    with pytest.raises(LedgerError, match="line 2"):
        list(read(path))


def test_a_killed_simulator_leaves_what_it_has_done(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    script = textwrap.dedent(f"""
        from pathlib import Path
        from contract.event import Event
        from simulators.ledger import Ledger
        with Ledger(Path({str(path)!r}), lambda: 0) as ledger:
            while True:
                ledger.sent(ledger.reported(Event("d", id=1)))
                print(ledger.counts.transmissions, flush=True)
    """)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as simulator:
        assert simulator.stdout is not None
        for _ in range(50):
            done = int(simulator.stdout.readline())
        os.kill(simulator.pid, signal.SIGKILL)
        done = max([done, *(int(line) for line in simulator.stdout if line.endswith("\n"))])

    assert sum(isinstance(line, Sent) for line in read(path)) >= done
