from functools import partial
from pathlib import Path

import pytest

from cloud.errors import StopError
from cloud.gateways import GatewayFile
from contract.topics import EVENTS

keys_in = partial(GatewayFile, topic=EVENTS)
ONE, TWO, THREE = (f"{number}" * 64 for number in (1, 2, 3))


def write(file: Path, text: str) -> Path:
    new = file.with_name("new")
    new.touch(0o600)
    new.write_bytes(text.encode())
    return new.replace(file)


@pytest.mark.parametrize(
    "text", [f"gw-1,{ONE}\r\ngw-1,{TWO}\n", f"\ufeffgateway,key\n# both\n\n gw-1 , {ONE.upper()} \ngw-1,{TWO}"]
)
def test_a_gateway_has_the_keys_of_its_lines(tmp_path: Path, text: str) -> None:
    found = keys_in(write(tmp_path / "keys", text)).keys
    assert found == {"gw-1": (bytes.fromhex(ONE), bytes.fromhex(TWO))}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "names no gateway"),
        ("# none\n", "names no gateway"),
        (f"gw-1,{ONE[1:]}", "line 1: expected a gateway, a comma and a key"),
        (f"gw-1 {ONE}", "line 1: expected"),
        (f"gw-1,{ONE},x", "line 1: expected"),
        (f'gw-1,{ONE}\n"gw-2,{TWO}\ngw-3,{THREE}', "line 2: expected"),
        (f"{'x' * 200_000},{ONE}", "line 1: expected"),
        (f"gw-1,{ONE}\ngw-1,{TWO}\ngw-1,{THREE}", "line 3: gw-1 has more than 2 keys"),
        ("gw-1,\udcff".encode("utf-8", "surrogateescape").decode("latin-1"), "expected"),
    ],
)
def test_a_wrong_file_is_refused_without_a_digit_of_it_and_the_keys_before_stay(
    tmp_path: Path, text: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "keys"
    with pytest.raises(StopError, match=reason) as refused:
        keys_in(write(place, text))
    assert ONE[1:] not in str(refused.value)
    file = keys_in(write(place, f"gw-1,{ONE}"))
    assert not file.renewed()
    write(place, text)
    assert not file.renewed()
    assert file.keys == {"gw-1": (bytes.fromhex(ONE),)}
    assert reason in caplog.text
    write(place, f"gw-2,{TWO}")
    assert file.renewed()
    assert file.keys == {"gw-2": (bytes.fromhex(TWO),)}


def test_a_fleet_of_ten_thousand_has_two_keys_each(tmp_path: Path) -> None:
    lines = (f"gateway-{number:06},{key}\n" for number in range(10_000) for key in (ONE, TWO))
    assert len(keys_in(write(tmp_path / "keys", "".join(lines))).keys) == 10_000


def test_a_file_that_is_away_is_told_once_and_one_whose_rights_were_wrong_is_read_once_they_are_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = write(tmp_path / "keys", f"gw-1,{ONE}")
    file = keys_in(place)
    place.unlink()
    assert [file.renewed() for _ in range(3)] == [False] * 3
    assert caplog.text.count("gateways=unreadable") == 1
    write(place, f"gw-2,{TWO}").chmod(0o640)
    assert not file.renewed()
    assert "others may read it" in caplog.text
    place.chmod(0o600)
    assert file.renewed()
    assert file.keys == {"gw-2": (bytes.fromhex(TWO),)}
