import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from contract.event import Event
from simulators import ledger
from simulators.judge.remote import judge_remote_run
from simulators.judge.sink import Sink
from simulators.ledger import Ledger
from simulators.report import page
from simulators.report.command import main
from simulators.report.observations import observe, quantiles
from simulators.report.page import Arrivals
from tests.simulators.oracle.delta_tables import write_table


def write_ledger(folder: Path, refused: int = 0, silent: int = 0) -> Path:
    """Write the ledger into a folder, with more events that were refused or never answered; return the file."""
    moments = iter(range(1_763_706_000_000, 1_763_706_999_000, 100))
    with Ledger(folder / "ledger.jsonl", lambda: next(moments)) as written:
        written.begin({"seed": 7, "scenario": {"name": "<b>", "description": "Much."}, "targets": "here"})
        for number in range(30):
            mark = written.reported(Event(f"urn:dev:mac:{number % 3:016x}", id=number, data={"a": number}))
            written.sent(mark)
            for _ in range(number % 4):
                written.sent(mark, again=True)
            written.acked(mark) if number % 10 else written.given_up(mark)
        for number in range(refused + silent):
            mark = written.reported(Event("urn:dev:mac:ff", id=number, data={"a": number}))
            written.sent(mark)
            if number < refused:
                written.refused(mark, code="4.00")
        written.happened("agent", "killed")
        written.end()
    return folder / "ledger.jsonl"


def test_what_is_observed_is_what_was_entered(tmp_path: Path) -> None:
    seen = observe(ledger.read(write_ledger(tmp_path)))
    assert {name: (one.events, one.acked, one.given_up) for name, one in seen.devices.items()} == {
        f"urn:dev:mac:{number:016x}": (10, 9, 1) for number in range(3)
    }
    assert seen.events_sent == 30
    assert {one.sent_max for one in seen.devices.values()} == {4}
    assert sum(seen.sent.values()) == 8 + 16 + 21 + 28
    (half, slowest) = quantiles(sum(seen.latencies.values(), start=Counter()), 0.5, 1.0)
    assert 100 <= half <= slowest <= 500


def test_the_report_is_whole_and_nothing_in_it_is_taken_for_markup(tmp_path: Path) -> None:
    file = write_ledger(tmp_path)
    write_table(tmp_path / "table", [])
    verdict = replace(judge_remote_run(file, Sink(table=tmp_path / "table"), final=True), declared={"equal-events": 2})
    page.write(file, verdict, Arrivals([(1_763_706_001_000, 5)], [(1_763_706_002_000, 5)]), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "The guarantees were violated: 27 lost." in text
    assert "Field test: &lt;b&gt;" in text
    assert text.count("<svg") == 4
    assert "equal-events: 2" in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "@import" not in text
    assert text.index("verdict bad") < text.index("<svg")


def test_a_report_is_built_again_from_a_ledger_alone(tmp_path: Path) -> None:
    assert main([str(write_ledger(tmp_path))], "oncegate-sim report") == 0
    assert '<p class="verdict unverified">' in (tmp_path / "report.html").read_text()
    assert "No table was read" in (tmp_path / "report.html").read_text()


def test_what_a_gateway_had_accepted_before_the_run_is_not_the_runs(tmp_path: Path) -> None:
    file = write_ledger(tmp_path)
    with file.open("a") as written:
        for values in ({"accepted_before": 169}, {"accepted": 169 + 30}):
            written.write(json.dumps({"sample": values, "at": 1_763_706_009_000}) + "\n")
    page.write(file, judge_remote_run(file, Sink()), Arrivals(), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert ">30<" in text
    assert ">199<" not in text


def test_the_flow_states_what_became_of_events_without_an_ack(tmp_path: Path) -> None:
    file = write_ledger(tmp_path, refused=4, silent=2)
    page.write(file, judge_remote_run(file, Sink()), Arrivals(), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert ">4 refused (4.00)<" in text
    assert ">3 given up<" in text
    assert ">2 never answered<" in text
    assert "9 got no ACK: 4 refused (4.00), 3 given up, 2 never answered." in text
    assert ">refused<" in text.partition("<h2>Events per second</h2>")[2].partition("</svg>")[0]


def test_a_run_judged_by_the_topic_claims_nothing_of_a_table(tmp_path: Path) -> None:
    file = write_ledger(tmp_path)
    verdict = replace(judge_remote_run(file, Sink()), rows=27, records=27, of_topic=True)
    page.write(file, verdict, Arrivals(), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "The topic was judged: no table was read." in text
    assert ">events in Kafka<" in text
    assert "rows in the table" not in text


def test_the_statement_that_erases_the_events_of_a_run_is_that_of_the_page() -> None:
    page_ = (Path(__file__).parents[2] / "docs" / "table.md").read_text()
    [shown] = re.findall(r"^UPDATE [^;]*urn:oncegate:erased[^;]*;$", page_, re.MULTILINE)
    of_delta = shown.replace("WHERE device = 'urn:dev:mac:00158d0001a2b3c4';", "WHERE device LIKE 'a%';")
    of_postgres = of_delta.replace("delta.`/srv/oncegate/events`", "events")
    assert Sink(table=Path("/srv/oncegate/events")).erasure("a") == of_delta
    assert Sink(postgres=Path("file")).erasure("a") == of_postgres
    assert Sink().erasure("a") is None
