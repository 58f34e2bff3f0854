import argparse
import io
import json
import sys
from pathlib import Path

import cbor2
import pytest

from agent.cli.failures import CommandError
from agent.cli.sensor import fingerprint
from contract.record import json_text
from tests.contract.test_fingerprint import VECTORS, Vector

EVENT = {"device": "urn:dev:mac:00158d0001a2b3c4", "id": 17, "data": {"temperature": 21.5}}
FINGERPRINT = "1876d2e5f34f91105e52555b000b5edc"


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    fingerprint.add_arguments(parser)
    parser.add_argument("--json", action="store_true")  # as for every command that has JSON
    return fingerprint.run(parser.parse_args(arguments))


def give(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(body)))


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_vector_by_the_command(vector: Vector, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, body in enumerate((cbor2.dumps(vector.entries), json_text(vector.entries).encode())):
        file = tmp_path / str(number)
        file.write_bytes(body)
        assert run("--fields", ",".join(vector.fields), str(file)) == 0
        assert capsys.readouterr().out == vector.fingerprint + "\n"


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_standard_input_is_read_by_default(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give(monkeypatch, b"\n " + json.dumps(EVENT).encode())
    assert run(*arguments) == 0
    assert capsys.readouterr().out == FINGERPRINT + "\n"


def test_an_array_gives_a_line_for_each_event_whose_label_joins_only_where_it_must(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled = {"device": EVENT["device"], "data": {"action": "single"}, "epoch": "00c0ffee00c0ffee", "sequence": 42}
    unlabelled = {"device": EVENT["device"], "data": {"action": "single"}}
    needless = EVENT | {"epoch": "00c0ffee00c0ffee", "sequence": 42}
    give(monkeypatch, cbor2.dumps([EVENT, unlabelled, labelled, needless]))
    assert run() == 0
    assert capsys.readouterr().out.split() == [FINGERPRINT, "-", "2e504fab171d9b5860d5137c776f0baa", FINGERPRINT]
    give(monkeypatch, cbor2.dumps([EVENT, unlabelled]))
    assert run("--json") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [{"fingerprint": FINGERPRINT}, {"fingerprint": None}]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"\xa1", "CBOR: the body ends"),
        (b"[1, 2", "JSON"),
        (b"7", "neither a map nor an array"),
        (b'{"id": 1}', "no device"),
        (b'[{"device": "a", "id": 1}, {"id": 1}]', "event 2: the event has no device"),
        (b'{"device": "a", "id": 1, "data": {"x": NaN}}', "NaN"),
        (b'{"device": "a", "epoch": "e"}', "epoch and sequence"),
    ],
)
def test_bad_input_is_told_and_is_a_failure(
    body: bytes, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give(monkeypatch, body)
    with pytest.raises(CommandError) as raised:
        run()
    assert message in str(raised.value)
    assert not capsys.readouterr().out


def test_a_missing_file_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="nothing"):
        run(str(tmp_path / "nothing"))


@pytest.mark.parametrize("fields", ["", "device,colour", "epoch"])
def test_wrong_fields_are_wrong_usage(fields: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        run("--fields", fields)
    assert exit_.value.code == 2
    assert "--fields" in capsys.readouterr().err
