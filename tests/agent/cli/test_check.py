"""The mistakes that `oncegate check` names."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.cli.doctor.machine import check_memory, check_store_bound
from agent.config.settings import IdentitySettings, StoreSettings
from tests.agent.cli.running import Run
from tests.support.agent_process import agent_process, configured


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[mqtt]\nusername = 'u'\n\npassword_file = 3", r":14: \[mqtt\] password_file: expected the path"),
        ("properties_file = '/none'", r":11: \[kafka\] properties_file: /none cannot be read"),
        ("[mqtt", ":11: not TOML: .*line 11"),
        ("[store]\nmax_bytes = 9\n[coap]\n[store]\n", r":14: store is already in line 11: remove one of the two"),
        ("topic = 'a'\n'topic' = 'b'", ":12: topic is already in line 11: remove one of the two"),
    ],
)
def test_check_says_where_and_what(line: str, message: str, file: Path, oncegate: Run) -> None:
    file.write_text(file.read_text() + line + "\n")
    status, _, error = oncegate("check", "--config", str(file))
    assert status == 2
    assert re.search(message, error)


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"])
def test_a_file_of_kafkas_properties_that_is_missing_is_named(name: str, file: Path, oncegate: Run) -> None:
    file.write_text(
        file.read_text().replace('"ssl.key.pem" = "geheim"', f'"{name}" = "/none.pem"').replace("SASL_SSL", "SSL")
    )
    status, _, error = oncegate("check", "--config", str(file))
    assert status == 2
    assert f"[kafka] properties: {name}: /none.pem cannot be read: " in error


@pytest.mark.parametrize(
    ("lines", "place", "reason"),
    [
        ('username = "u"\npassword_file = "/none"', ":13: [mqtt] password_file: ", "'/none'"),
        ('username = "u"\npassword_file = "/dev/null"', ":13: [mqtt] password_file: ", "not a regular file"),
        ('tls = true\ntls_ca_file = "/none.pem"', ":12: [mqtt] tls: ", "'/none.pem'"),
    ],
)
def test_a_file_of_the_login_to_mqtt_that_cannot_be_used_is_named(
    lines: str, place: str, reason: str, file: Path, oncegate: Run
) -> None:
    file.write_text(file.read_text().replace("SASL_SSL", "PLAINTEXT").replace(', "ssl.key.pem" = "geheim"', ""))
    file.write_text(f"{file.read_text()}[mqtt]\n{lines}\n")
    assert oncegate("check", "--config", str(file))[0] == 0, "MQTT is disabled"
    file.write_text(file.read_text() + "enabled = true\n")
    status, _, error = oncegate("check", "--config", str(file))
    assert (status, error.startswith(f"oncegate: {file}{place}")) == (2, True), error
    assert reason in error


def test_a_token_file_that_is_open_to_others_is_named_by_check_and_by_run(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"device urn:x sha256:{'0' * 64}\n")
    tokens.chmod(0o644)
    file = configured(tmp_path, coap="")
    file.write_text(file.read_text().replace('bind = "127.0.0.1:0"', f'token_file = "{tokens}"'))
    for verb in ("check", "run"):
        command = [sys.executable, "-m", "agent.cli.main", verb, "--config", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, "chmod 640" in done.stderr, "Traceback" in done.stderr) == (2, True, False)


RULE = '[[identity.rules]]\ndevice = "urn:a"\nfields = ["device", "type", "id", "boot", "data"]\n'
MAPPING = '[[mappings]]\nname = "acme"\ndevice = "a:{body.d}"\ndata = {v = "body.v"}\n'
SUBSCRIPTION = '[[mqtt.subscriptions]]\ntopic = "a/+"\nformat = "{}"\n'
WRONG_IN_MANY_PLACES = """\
[gateway]
state_dir = "state"
clock = "sun"

[kafka]
topci = "x"
bootstrap_servers = "127.0.0.1:1"

[kafka.properties]
"linger.msx" = 5
"security.protocl" = "SASL_SSL"
"client.id" = "mine"
"sasl.password" = "geheim"

[http]
bind = "0.0.0.0:0"
tls_key = "/none.pem"

[mqtt]
tls_ca_file = "/ca"
password_file = "/p"
[[mqtt.subscriptions]]
topic = "a"
[[mqtt.subscriptions]]
topic = "b"
format = 3

[coap]
bind = "5683"

[cop]
"""


def test_all_mistakes_are_named_at_once_with_their_lines(
    file: Path, oncegate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(WRONG_IN_MANY_PLACES)
    monkeypatch.setenv("ONCEGATE_COPA__BIND", "x")
    monkeypatch.setenv("ONCEGATE_STORE__MAX_BYTES", "lots")
    status, _, message = oncegate("check", "--config", str(file))
    text = message.replace(f"oncegate: {file}", "").replace("oncegate: ", "")
    assert status == 2
    assert [line.rpartition("; ")[0] or line for line in text.splitlines()] == [
        ":1: [gateway] id: missing; name of this gateway",
        ":3: [gateway] clock: expected one of kernel, trusted",
        ":6: [kafka] topci: unknown key",
        ":10: [kafka] properties: Kafka's client has no property linger.msx",
        ":11: [kafka] properties: Kafka's client has no property security.protocl",
        ":15: [http] token_file: needed, since http.bind = 0.0.0.0:0 can be reached from beyond this machine",
        ":15: [http] tls_certificate: http.tls_certificate and http.tls_key: expected both or neither",
        ":22: [mqtt] subscriptions: entry 1: expected tables with topic (a filter",
        (
            ":22: [mqtt] subscriptions: entry 2: expected as format one of json, cbor, senml-json, senml-cbor, "
            "or the name of a mapping"
        ),
        ':29: [coap] bind: expected an address and a port such as "[::]:5683" or "127.0.0.1:8580"',
        ":31: unknown section [cop]",
        "environment: ONCEGATE_COPA__BIND: unknown section",
        'environment: [store] max_bytes: expected a size such as "64KiB", "1GiB", or bytes as a number',
    ]
    status, out, error = oncegate("check", "--config", str(file), "--json")
    found = json.loads(out)
    assert (status, error, found["fine"]) == (2, "", False)
    assert [one["line"] for one in found["mistakes"]] == [1, 3, 6, 10, 11, 15, 15, 22, 22, 29, 31, None, None]
    mistakes = zip(text.splitlines(), found["mistakes"], strict=True)
    assert all(line.endswith(one["message"]) and one["section"] in line for line, one in mistakes)
    assert "geheim" not in message + out


USELESS = """\
[[mqtt.subscriptions]]
topic = "a"
format = "json"

[identity]
memory = "900GiB"

[store]
max_bytes = 8

[[forward.lanes]]
name = "short"
type = "a"
priority = 1
time_to_live = "7d"

[[forward.lanes]]
name = "long"
type = "a"
priority = 1
time_to_live = "8d"
"""


def test_a_configuration_without_mistakes_is_fine_and_what_cannot_work_is_warned_about_in_the_words_of_doctor(
    file: Path, oncegate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(file.read_text().replace("SASL_SSL", "PLAINTEXT").replace(', "ssl.key.pem" = "geheim"', ""))
    assert oncegate("check", "--config", str(file)) == (0, f"{file}: fine\n", "")
    file.write_text(file.read_text() + USELESS)
    for section in ("COAP", "HTTP", "MQTT"):
        monkeypatch.setenv(f"ONCEGATE_{section}__ENABLED", "false")
    (memory,) = check_memory(IdentitySettings(memory_bytes=900 << 30), 2)
    (bound,) = check_store_bound(StoreSettings(max_bytes=8), 2)
    expected = [
        "coap, http and mqtt are all disabled: no event can arrive",
        "mqtt.subscriptions: mqtt.enabled is false: nothing is subscribed",
        "forward.lanes: the events of long expire after identity.retention (7 d) at the latest",
        f"memory: {memory.text}; {memory.hint}",
        f"space: {bound.text}; {bound.hint}",
    ]
    shown = "".join(f"warning: {warning}\n" for warning in expected)
    assert oncegate("check", "--config", str(file)) == (0, f"{shown}{file}: fine\n", "")
    status, out, _ = oncegate("check", "--config", str(file), "--json")
    assert status == 0
    assert json.loads(out) == {"configuration": str(file), "fine": True, "mistakes": [], "warnings": expected}


@pytest.mark.guarantee(2)
def test_a_changed_identity_is_told_before_the_start_that_uses_it_and_once_by_it(tmp_path: Path, oncegate: Run) -> None:
    file, told = tmp_path / "oncegate.toml", []
    names = ("identity.rules", "mappings acme", "mqtt.subscriptions a/+")
    written = (MAPPING, SUBSCRIPTION.format("json"))
    again = (MAPPING.replace("body.v", "body.w"), RULE + SUBSCRIPTION.format("tasmota"))
    for above, below in (written, again, again, ("", ""), written):
        file.write_text(
            f'{above}[gateway]\nid = "gw1"\nstate_dir = "{tmp_path}/state"\n[kafka]\nbootstrap_servers = '
            f'"127.0.0.1:1"\n[coap]\nenabled = false\n[http]\nenabled = false\n{below}'
        )
        _, said, _ = oncegate("check", "--config", str(file))
        (tmp_path / "agent.log").unlink(missing_ok=True)
        with agent_process(file) as process:
            process.start()
            process.wait_for_log("agent=ready")
            log = process.log()
        told.append([(f"{name}: not as at the last start" in said, f"changed by='{name}'" in log) for name in names])
    same, changed = (False, False), (True, True)
    assert told[:3] == [[same] * 3, [changed] * 3, [same] * 3]
    for last_two in zip(*told[3:], strict=True):  # one that comes back is compared with what it was
        assert sorted(last_two) == [same, changed]


def test_no_secret_stands_in_what_is_said_of_wrong_properties(
    file: Path, oncegate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEGATE_KAFKA__PROPERTIES", "sasl.password=geheim")
    status, _, message = oncegate("check", "--config", str(file))
    assert status == 2
    assert "[kafka] properties: expected a table" in message
    assert "geheim" not in message
