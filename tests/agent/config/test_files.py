"""Files of any type and content: read, or refused with a reason and its line; the reader never blocks."""

import os
import socket
import threading
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.config import files, load
from agent.config.mistakes import ConfigurationError
from agent.config.settings import HttpSettings, KafkaSettings, MqttSettings
from agent.config.toml_lines import line_at, lines_of
from agent.forward.errors import KafkaSettingsError
from agent.forward.kafka.client import given_properties
from agent.http.address import HttpSettingsError
from agent.http.auth.access import open_tls
from agent.http.auth.tokens import read_tokens
from agent.mqtt.client import connect_separately
from agent.mqtt.packets import MqttError
from contract.files import BYTES_MAX, read
from tests.support.calls import counted_calls

SECONDS_MAX = 30


def socket_file(file: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(file))


def huge(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(1 << 40)
    file.chmod(0o600)


def not_utf8(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00")
    file.chmod(0o600)


UNREADABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "FIFO": (lambda file: os.mkfifo(file, 0o600), "not a regular file"),
    "socket": (socket_file, "No such device or address"),
    "device": (lambda file: file.symlink_to("/dev/zero"), "not a regular file"),
    "directory": (lambda file: file.mkdir(), "not a regular file"),
    "huge": (huge, "larger than 1048576 bytes"),
    "missing": (lambda _: None, "No such file"),
    "link to nothing": (lambda file: file.symlink_to("/nowhere/at/all"), "No such file"),
    "link to itself": (lambda file: file.symlink_to(file), "Too many levels of symbolic links"),
    "not UTF-8": (not_utf8, "codec can't decode"),
}


def outcome(read: Callable[[Path], object], path: Path) -> object:
    box: list[object] = []

    def run() -> None:
        try:
            box.append(read(path))
        except Exception as error:  # noqa: BLE001  # whatever it is: the test judges it
            box.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS_MAX)
    assert box, f"not within {SECONDS_MAX} s: the reader waits"
    return box[0]


def _mqtt(settings: MqttSettings) -> None:
    connect_separately(settings, "gw1")


READERS: dict[str, tuple[Callable[[Path], object], type[Exception]]] = {
    "oncegate.toml": (lambda path: load.load(path, {}), ConfigurationError),
    "http.token_file": (read_tokens, HttpSettingsError),
    "http.tls_certificate": (
        lambda path: open_tls(HttpSettings(tls_certificate=path, tls_key=path)),
        HttpSettingsError,
    ),
    "kafka.properties_file": (
        lambda path: given_properties(KafkaSettings("localhost:1", properties_file=path)),
        KafkaSettingsError,
    ),
    "mqtt.password_file": (lambda path: _mqtt(MqttSettings(username="u", password_file=path)), MqttError),
    "mqtt.tls_ca_file": (lambda path: _mqtt(MqttSettings(tls=True, tls_ca_file=path)), MqttError),
    "mqtt.tls_certificate_file": (lambda path: _mqtt(MqttSettings(tls=True, tls_certificate_file=path)), MqttError),
}


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("kind", UNREADABLE)
@pytest.mark.parametrize("reader", READERS)
def test_a_file_of_any_kind_is_refused_by_each_that_reads_it(tmp_path: Path, reader: str, kind: str) -> None:
    make, reason = UNREADABLE[kind]
    make(tmp_path / "odd")
    read, error = READERS[reader]
    refusal = outcome(read, tmp_path / "odd")
    assert type(refusal) is error
    assert reason in str(refusal) or kind == "not UTF-8"  # which each library says in its own words


def test_a_file_that_an_editor_has_begun_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    file = tmp_path / "oncegate.toml"
    file.write_text('[gateway]\nid = "gw1"\n[kafka]\nbootstrap_servers = "a:1"\n', "utf-8-sig")
    assert load.load(file, {}).gateway.id == "gw1"


def test_a_file_as_large_as_may_be_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * BYTES_MAX)
    (tmp_path / "b").symlink_to("a")
    assert len(read(tmp_path / "b").data) == BYTES_MAX


@given(st.text(max_size=200) | st.text(st.sampled_from("[]{}=\"'.,\n 0e-:TZ"), max_size=60))
@example("a = " + "[" * 6_000)
@example("a = " + "9" * 5_000)
@example("a = 0000-00-00")
def test_any_text_is_toml_or_a_toml_error(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(files.parse_toml(text), dict)


TEXT = """# a comment with [brackets] and = signs
title = "x" # [no table]
[gateway]
id = "gw1"
"quoted key" = 1
text = \"\"\"
[not.a.table]
id = 2
\"\"\"
literal = '''
[[not.a.table]]'''
list = [
  "a]", # ] = [
  "b",
] # of both,
[kafka.properties]
"linger.ms" = 5
sasl.mechanism = 'PLAIN=['
inline = { a = 1, b = [1, 2] }

[[mqtt.subscriptions]]
topic = "a"
[[mqtt.subscriptions]]
topic = "b"
"""


@pytest.mark.parametrize("end", [",", ",\r", ",  # in the kitchen", ', # ["'])
def test_a_long_list_is_read_once_and_not_with_each_of_its_lines(end: str) -> None:
    """So that ten thousand devices that are allowed take no minutes at each start, and in each command."""
    calls_of = []
    for count in (100, 200):
        names = "\n".join(f'"urn:{number}"{end}' for number in range(count))
        with counted_calls() as calls:
            lines = lines_of(f"[devices]\nallow = [\n{names}\n]\ndeny = []")
        assert lines == {("devices",): 1, ("devices", "allow"): 2, ("devices", "deny"): count + 4}
        calls_of.append(calls.count)
    assert calls_of[1] < 3 * calls_of[0]


def test_every_key_has_its_line() -> None:
    tomllib.loads(TEXT)
    lines = lines_of(TEXT)
    assert lines == {
        ("title",): 2,
        ("gateway",): 3,
        ("gateway", "id"): 4,
        ("gateway", "quoted key"): 5,
        ("gateway", "text"): 6,
        ("gateway", "literal"): 10,
        ("gateway", "list"): 12,
        ("kafka", "properties"): 16,
        ("kafka", "properties", "linger.ms"): 17,
        ("kafka", "properties", "sasl"): 18,
        ("kafka", "properties", "sasl", "mechanism"): 18,
        ("kafka", "properties", "inline"): 19,
        ("mqtt", "subscriptions"): 21,
        ("mqtt", "subscriptions", "topic"): 22,
    }
    assert line_at(lines, ("kafka", "properties", "inline", "b")) == 19
    assert line_at(lines, ("store", "max_bytes")) is None
