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
        ("[store]\nmax_bytes = 'lots'", r":12: \[store\] max_bytes: expected a size such as .*; found 'lots'"),
        ("[receits]\nenabled = true", r":11: unknown section \[receits\]; did you mean receipts\?"),
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
        ":14: [http] token_file: needed, since http.bind = 0.0.0.0:0 can be reached from beyond this machine",
        ":14: [http] tls_certificate: http.tls_certificate and http.tls_key: expected both or neither",
        ":21: [mqtt] subscriptions: entry 1: expected tables with topic (a filter",
        (
            ":21: [mqtt] subscriptions: entry 2: expected as format one of json, cbor, senml-json, senml-cbor, "
            "or the name of a mapping"
        ),
        ':28: [coap] bind: expected an address and a port such as "[::]:5683" or "127.0.0.1:8580"',
        ":30: unknown section [cop]",
        "environment: ONCEGATE_COPA__BIND: unknown section",
        'environment: [store] max_bytes: expected a size such as "64KiB", "1GiB", or bytes as a number',
    ]


def test_the_mistakes_are_one_json_object_for_programs(file: Path, oncegate: Run) -> None:
    file.write_text(
        file.read_text()
        .replace('"ssl.key.pem" = "geheim"', '"linger.msx" = 5, "client.idd" = "x"')
        .replace("SASL_SSL", "SSL")
    )
    file.write_text(file.read_text() + "[mqtt]\ntls_ca_file = '/ca'\npassword_file = '/p'\n")
    status, out, error = oncegate("check", "--config", str(file), "--json")
    found = json.loads(out)
    assert (status, error, found["fine"], found["warnings"]) == (2, "", False, [])
    assert [(one["line"], one["section"], one["key"]) for one in found["mistakes"]] == [
        (10, "kafka", "properties"),
        (10, "kafka", "properties"),
        (12, "mqtt", "tls_ca_file"),
        (13, "mqtt", "password_file"),
    ]
    assert found["mistakes"][3]["message"] == "expected only with username"
    assert {one["message"].split()[-1] for one in found["mistakes"][:2]} == {"linger.msx", "client.idd"}
    assert "geheim" not in out


def test_a_configuration_without_mistakes_is_fine_and_one_that_accepts_nothing_is_warned_about(
    file: Path, oncegate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(file.read_text().replace("SASL_SSL", "PLAINTEXT").replace(', "ssl.key.pem" = "geheim"', ""))
    assert oncegate("check", "--config", str(file)) == (0, f"{file}: fine\n", "")
    file.write_text(file.read_text() + '[[mqtt.subscriptions]]\ntopic = "a"\nformat = "json"\n')
    for section in ("COAP", "HTTP", "MQTT"):
        monkeypatch.setenv(f"ONCEGATE_{section}__ENABLED", "false")
    status, out, _ = oncegate("check", "--config", str(file), "--json")
    result = json.loads(out)
    assert (status, result["fine"], result["mistakes"]) == (0, True, [])
    assert result["warnings"] == [
        "coap, http and mqtt are all disabled: no event can arrive",
        "mqtt.subscriptions: mqtt.enabled is false: nothing is subscribed",
    ]


def test_a_memory_and_a_store_that_cannot_work_here_are_warned_about_in_the_words_of_doctor(
    file: Path, oncegate: Run
) -> None:
    file.write_text(file.read_text().replace("SASL_SSL", "PLAINTEXT").replace(', "ssl.key.pem" = "geheim"', ""))
    file.write_text(file.read_text() + '[identity]\nmemory = "900GiB"\n[store]\nmax_bytes = 1\n')
    (memory,) = check_memory(IdentitySettings(memory_bytes=900 << 30))
    (bound,) = check_store_bound(StoreSettings(max_bytes=1))
    status, out, error = oncegate("check", "--config", str(file))
    assert (status, error) == (0, "")
    assert out.splitlines() == [
        f"warning: memory: {memory.text}; {memory.hint}",
        f"warning: space: {bound.text}; {bound.hint}",
        f"{file}: fine",
    ]


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


def test_a_time_to_live_beyond_what_the_store_knows_is_a_warning(file: Path, oncegate: Run) -> None:
    lane = '[[forward.lanes]]\nname = "%s"\ntype = "a"\npriority = 1\ntime_to_live = "%s"\n'
    file.write_text(file.read_text().replace("SASL_SSL", "PLAINTEXT").replace(', "ssl.key.pem" = "geheim"', ""))
    file.write_text(file.read_text() + lane % ("short", "7d") + lane % ("long", "8d"))
    status, shown, error = oncegate("check", "--config", str(file))
    assert status == 0
    (warning,) = [line for line in (shown + error).splitlines() if "forward.lanes" in line]
    assert warning.startswith("warning: forward.lanes: the events of long expire after identity.retention")
