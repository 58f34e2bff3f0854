"""The credentials directory: which files are read or skipped, with which reason, and how a new file is created."""

import os
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.coap.errors import CredentialsError
from agent.coap.oscore.credentials import CredentialFiles, create_credential, read_credentials
from tests.agent.config.test_files import UNREADABLE, outcome
from tests.docs.pages import ROOT, blocks
from tests.support.flushes import recorded

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
SOUND = {"device": f'"{DEVICE}"', "secret": f'"{bytes(16).hex()}"', "sensor_id": '"01"'}


def written(folder: Path, name: str, changes: Mapping[str, str | None], mode: int = 0o600) -> Path:
    entries = {**SOUND, **changes}
    file = folder / f"{name}.toml"
    file.write_text("".join(f"{key} = {value}\n" for key, value in entries.items() if value is not None))
    file.chmod(mode)
    return file


def test_a_file_gives_a_credential(tmp_path: Path) -> None:
    written(tmp_path, "a", {"salt": '"0a0b"', "gateway_id": '"67"', "id_context": '"c0"', "relay": "true"})
    (tmp_path / "README").write_text("not a credential")
    files = read_credentials(tmp_path)
    assert not files.errors
    (credential,) = files.credentials
    assert (credential.device, credential.secret, credential.salt) == (DEVICE, bytes(16), b"\x0a\x0b")
    assert (credential.sensor_id, credential.gateway_id, credential.id_context) == (b"\x01", b"g", b"\xc0")
    assert credential.relay


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"secret": '"00"'}, "secret: expected 16 to 64 bytes"),
        ({"secret": '"hex?"'}, "secret: expected 16 to 64 bytes"),
        ({"secret": None}, "secret: expected 16 to 64 bytes"),
        ({"sensor_id": '"0102030405060708"'}, "sensor_id: expected 0 to 7 bytes"),
        ({"sensor_id": '""'}, "sensor_id and gateway_id are equal"),
        ({"device": '""'}, "device: expected"),
        ({"device": '"urn:oncegate:gateway:gw1"'}, "the gateways' own"),
        ({"relay": '"yes"'}, "relay: expected true or false"),
        ({"sercet": '"00"'}, "unknown key 'sercet'"),
        ({"device": "urn"}, "not TOML"),
        ({"device": '"urn:a\\u0000b"'}, "device holds a control character"),
        ({"device": '"urn:a\\u000ab"'}, "device holds a control character"),
        ({"device": f'"{"x" * 257}"'}, "longer than 256 characters"),
        ({"device": "[" * 6_000}, "not TOML: nested too deeply"),
        ({"device": "9" * 5_000}, "not TOML: Exceeds the limit"),
        ({"device": f'"{"x" * 20_000}"'}, "larger than 8192 bytes"),
        ({"x" * 300: "1"}, f"unknown key {'x' * 64!r};"),
    ],
)
def test_a_bad_file_is_named_and_stops_no_other(tmp_path: Path, changes: dict[str, str | None], reason: str) -> None:
    bad = written(tmp_path, "bad", changes)
    written(tmp_path, "good", {"sensor_id": '"02"'})
    files = read_credentials(tmp_path)
    assert [credential.sensor_id for credential in files.credentials] == [b"\x02"]
    (error,) = files.errors
    assert str(bad) in error
    assert reason in error
    assert bytes(16).hex() not in error


def test_a_file_that_is_open_to_others_is_refused_with_the_command(tmp_path: Path) -> None:
    file = written(tmp_path, "a", {}, mode=0o644)
    files = read_credentials(tmp_path)
    assert (files.credentials, len(files.errors)) == ((), 1)
    assert f"{file}: open to others (mode 644): chmod 640" in files.errors[0]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({}, "sensor_id 01"),
        ({"sensor_id": '"02"'}, "its secret"),
        ({"sensor_id": '"02"', "gateway_id": '"67"'}, "its secret"),
        ({"sensor_id": '"02"', "salt": '"0a"'}, None),
        ({"sensor_id": '"02"', "id_context": '"0a"'}, None),
    ],
)
def test_two_sensors_with_one_id_or_keys_derived_from_the_same_are_not_both_served(
    tmp_path: Path, changes: dict[str, str | None], what: str | None
) -> None:
    first, second = written(tmp_path, "a", {}), written(tmp_path, "b", changes)
    files = read_credentials(tmp_path)
    assert len(files.credentials) == (2 if what is None else 1)
    told = f"{second}: {what} is already used in {first}"
    assert [told in error for error in files.errors] == [True] * (what is not None)


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_file_of_any_kind_is_left_out_with_a_reason(tmp_path: Path, kind: str) -> None:
    UNREADABLE[kind][0](tmp_path / "odd.toml")
    written(tmp_path, "sound", {})
    found = outcome(read_credentials, tmp_path)
    assert isinstance(found, CredentialFiles)
    assert [credential.device for credential in found.credentials] == [DEVICE]
    assert len(found.errors) == (kind != "missing")
    assert all(error.startswith(str(tmp_path / "odd.toml")) for error in found.errors)


def test_a_name_that_is_no_text_or_has_line_ends_is_shown_escaped(tmp_path: Path) -> None:
    for name in (b"\xff.toml", b"a\nb.toml"):
        (Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))).write_bytes(b"?")
    errors = read_credentials(tmp_path).errors
    assert len(errors) == 2
    assert all(error.isprintable() and error.encode() for error in errors)


KEYS = ("device", "secret", "salt", "sensor_id", "gateway_id", "id_context", "relay", "other")
VALUES = ('"urn:a"', f'"{bytes(16).hex()}"', '"01"', '""', "true", "1", "[[]]", "{a = 1}", "1979-05-27", '"\\u0007"')
SOME = st.sampled_from(VALUES)
ENTRIES = st.lists(st.tuples(st.sampled_from(KEYS), SOME | st.text(max_size=8)), max_size=8)


@pytest.mark.guarantee(6)
@given(st.binary(max_size=300) | ENTRIES.map(lambda each: "".join(f"{a} = {b}\n" for a, b in each).encode()))
def test_whatever_a_file_holds_it_is_a_credential_or_has_its_reason(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("credentials")
    file = folder / "any.toml"
    file.write_bytes(content)
    file.chmod(0o600)
    found = read_credentials(folder)
    assert len(found.credentials) + len(found.errors) == 1
    assert all(error.startswith(str(file)) for error in found.errors)


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="credentials_dir"):
        read_credentials(tmp_path / "missing")


def test_the_file_in_the_documents_is_taken(tmp_path: Path) -> None:
    (example,) = blocks(ROOT / "docs" / "oscore.md", "credential")
    file = tmp_path / "a.toml"
    file.write_text(example)
    file.chmod(0o640)
    files = read_credentials(tmp_path)
    assert not files.errors
    assert files.credentials[0].id_context == bytes.fromhex("37cbf3210017a2d3")


def test_a_new_credential_is_written_once_and_has_an_id_of_its_own(tmp_path: Path) -> None:
    file, first = create_credential(tmp_path, DEVICE, relay=False)
    _, second = create_credential(tmp_path, "urn:dev:mac:00158d0001a2b3c5", relay=True)
    assert read_credentials(tmp_path).credentials == (first, second)
    assert not read_credentials(tmp_path).errors
    assert first.sensor_id != second.sensor_id
    assert first.secret != second.secret
    assert file.stat().st_mode & 0o777 == 0o640
    with pytest.raises(CredentialsError, match="exists"):
        create_credential(tmp_path, DEVICE, relay=False)


def test_those_made_at_once_have_ids_of_their_own(tmp_path: Path) -> None:
    devices = [f"urn:dev:mac:{number:016x}" for number in range(16)]
    with ThreadPoolExecutor(len(devices)) as pool:
        made = list(pool.map(lambda device: create_credential(tmp_path, device, relay=False)[1], devices))
    assert len({credential.sensor_id for credential in made}) == len(devices)
    assert read_credentials(tmp_path).errors == ()


@pytest.mark.parametrize("device", ["urn:a:b", "urn_a:b", "urn:a/b", "../../urn", "\u00e9", "x" * 256, "\u6f22" * 256])
def test_each_device_has_a_file_of_its_own_in_the_folder(tmp_path: Path, device: str) -> None:
    other, _ = create_credential(tmp_path, "urn:a_b", relay=False)
    file, credential = create_credential(tmp_path, device, relay=False)
    assert file.parent == tmp_path
    assert credential in read_credentials(tmp_path).credentials
    assert sorted(tmp_path.iterdir()) == sorted((file, other))


def test_a_new_credential_is_on_disk_under_its_name_before_its_secret_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = recorded(monkeypatch, "link")
    create_credential(tmp_path, DEVICE, relay=False)
    assert calls == ["fsync file", "link", f"fsync {tmp_path.name}"]


@pytest.mark.parametrize("step", ["fchmod", "fchown", "fsync", "link", "fsync folder"])
def test_a_credential_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    step, _, folder = step.partition(" ")
    real = getattr(os, step)

    def fail(*arguments: Any) -> None:
        if folder and not stat.S_ISDIR(os.fstat(*arguments).st_mode):
            real(*arguments)
            return
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(os, step, fail)
        with pytest.raises(CredentialsError, match="cannot be written: Operation not permitted"):
            create_credential(tmp_path, DEVICE, relay=False)
    assert list(tmp_path.iterdir()) == []
    create_credential(tmp_path, DEVICE, relay=False)
    assert [file.suffix for file in tmp_path.iterdir()] == [".toml"]
