"""Files of any type and content: read, or refused with a reason; the reader never blocks."""

from __future__ import annotations

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
from agent.forward.errors import KafkaSettingsError
from agent.forward.kafka.client import given_properties
from agent.http.auth.tls import open_tls
from agent.http.auth.tokens import read_tokens
from agent.http.errors import HttpSettingsError
from agent.mqtt.client import connect_separately
from agent.mqtt.error import MqttError
from contract.files import BYTES_MAX, read
from tests.agent.config.unreadable_files import UNREADABLE, outcome


def _tls(path: Path) -> None:
    open_tls(HttpSettings(tls_certificate=path, tls_key=path))


def _mqtt(settings: MqttSettings) -> None:
    connect_separately(settings, "gw1")


READERS: dict[str, tuple[Callable[[Path], object], type[Exception]]] = {
    "oncegate.toml": (lambda path: load.load(path, {}), ConfigurationError),
    "http.token_file": (read_tokens, HttpSettingsError),
    "http.tls_certificate": (_tls, HttpSettingsError),
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
    UNREADABLE[kind][0](tmp_path / "odd")
    read, error = READERS[reader]
    refusal = outcome(read, tmp_path / "odd")
    assert type(refusal) is error
    assert str(refusal)


@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_is_no_readable_file_is_an_error_and_keeps_nobody_waiting(tmp_path: Path, kind: str) -> None:
    make, reason = UNREADABLE[kind]
    make(tmp_path / "odd")
    refusal = outcome(files.read_text, tmp_path / "odd")
    assert isinstance(refusal, OSError | UnicodeDecodeError)
    assert reason in str(refusal)


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
    with suppress(tomllib.TOMLDecodeError):
        assert isinstance(files.parse_toml(text), dict)
