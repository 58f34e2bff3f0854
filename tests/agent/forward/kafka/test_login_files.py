"""Renewed files of a login are noticed, and those that no client can use are left alone."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent.config.settings import KafkaSettings
from agent.forward.kafka.hours import Hours
from agent.forward.kafka.login_files import CHECK_MS, LoginFiles, SessionStop, login_files
from tests.agent.store.stores import HandClock


def settings(tmp_path: Path) -> KafkaSettings:
    file = tmp_path / "kafka.properties"
    file.write_text("sasl.password=first\n")
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "a"}
    return KafkaSettings("127.0.0.1:1", properties=properties, properties_file=file)


def looks(files: LoginFiles, clock: HandClock, count: int = 3) -> list[bool]:
    found = []
    for _ in range(count):
        clock.running += CHECK_MS
        found.append(files.renewed())
    return found


def test_a_renewed_file_counts_once_two_looks_agree(tmp_path: Path) -> None:
    chosen, clock = settings(tmp_path), HandClock()
    files = LoginFiles(chosen, clock)
    assert looks(files, clock) == [False, False, False]
    assert chosen.properties_file is not None
    chosen.properties_file.write_text("sasl.password=second-one\n")
    assert looks(files, clock, 2) == [False, True]


def test_files_with_which_no_client_opens_leave_the_session_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen, clock = settings(tmp_path), HandClock()
    stop = threading.Event()
    session = SessionStop(stop, LoginFiles(chosen, clock), Hours((), clock))
    assert chosen.properties_file is not None
    chosen.properties_file.write_text("no such line\n")
    for _ in range(4):
        clock.running += CHECK_MS
        assert not session.is_set()
    assert caplog.text.count("login=unusable") == 1
    chosen.properties_file.write_text("sasl.password=third\n")
    clock.running += CHECK_MS
    assert not session.is_set()
    clock.running += CHECK_MS
    assert session.is_set()
    assert session.renewed
    assert not stop.is_set()


def test_the_files_are_those_that_the_properties_name() -> None:
    chosen = KafkaSettings("b:1", properties={"ssl.ca.location": "/ca.pem", "sasl.oauthbearer.assertion.file": "/jwt"})
    assert login_files(chosen) == {"ssl.ca.location": Path("/ca.pem"), "sasl.oauthbearer.assertion.file": Path("/jwt")}
