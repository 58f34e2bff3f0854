import json
from pathlib import Path

import cbor2
import pytest

from contract.record import json_text
from tests.agent.cli.running import here
from tests.contract.test_fingerprint import VECTORS, Vector

EVENT = {"device": "urn:dev:mac:00158d0001a2b3c4", "id": 17, "data": {"temperature": 21.5}}
FINGERPRINT = "1876d2e5f34f91105e52555b000b5edc"


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_vector_by_the_command(vector: Vector, tmp_path: Path) -> None:
    for number, body in enumerate((cbor2.dumps(vector.entries), json_text(vector.entries).encode())):
        file = tmp_path / str(number)
        file.write_bytes(body)
        done = here("fingerprint", "--fields", ",".join(vector.fields), str(file))
        assert (done.returncode, done.stdout) == (0, vector.fingerprint + "\n")


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_standard_input_is_read_by_default(arguments: tuple[str, ...]) -> None:
    done = here("fingerprint", *arguments, text="\n " + json.dumps(EVENT))
    assert (done.returncode, done.stdout) == (0, FINGERPRINT + "\n")


def test_an_array_gives_a_line_for_each_event_whose_label_joins_only_where_it_must(tmp_path: Path) -> None:
    unlabelled = {"device": EVENT["device"], "data": {"action": "single"}}
    label = {"epoch": "00c0ffee00c0ffee", "sequence": 42}
    file = tmp_path / "events"
    file.write_bytes(cbor2.dumps([EVENT, unlabelled, unlabelled | label, EVENT | label]))
    expected = [FINGERPRINT, "-", "2e504fab171d9b5860d5137c776f0baa", FINGERPRINT]
    assert here("fingerprint", str(file)).stdout.split() == expected
    lines = here("fingerprint", str(file), "--json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [{"fingerprint": None if one == "-" else one} for one in expected]


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
def test_bad_input_is_told_and_is_a_failure(body: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "event"
    file.write_bytes(body)
    done = here("fingerprint", str(file))
    assert (done.returncode, done.stdout, message in done.stderr) == (1, "", True)


def test_a_missing_file_is_a_failure(tmp_path: Path) -> None:
    done = here("fingerprint", str(tmp_path / "nothing"))
    assert (done.returncode, "nothing" in done.stderr) == (1, True)


@pytest.mark.parametrize("fields", ["", "device,colour", "epoch"])
def test_wrong_fields_are_wrong_usage(fields: str) -> None:
    done = here("fingerprint", "--fields", fields)
    assert (done.returncode, "--fields" in done.stderr) == (2, True)
