"""`oncegate support-bundle`: it helps, and holds no secret."""

import json
import os
import re
import stat
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from agent.cli.bundle.redaction import Redaction
from tests.agent.cli.running import RunningAgent, here
from tests.docs.pages import ROOT
from tests.support.agent_process import configured

MEMBERS = {"versions.json", "configuration.json", "status.json", "live.json", "metrics.txt", "rejected.json"}
MEMBERS |= {"doctor.json", "journal.txt"}
CERTIFICATE = ROOT / "tests" / "agent" / "http" / "localhost.crt"
KEY = ROOT / "tests" / "agent" / "http" / "localhost.key"
IN_PLACES = (
    *("geheim-property", 'geheim "quoted" ü', "geheim-jaas-inline", "geheim-pem", "geheim-file", "geheim-jaas"),
    *("geheim-mqtt", "geheim-token", "geheim-environment", "geheim-misplaced", "geheim-unnamed", "geheim-bearer"),
)


def members(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        return {
            Path(member.name).name: archive.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in archive.getmembers()
        }


MAC_KEY = "9e" * 32


def bundle(configuration: Path, file: Path, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    command = (sys.executable, "-m", "agent.cli.main", "support-bundle", str(file), "--config", str(configuration))
    done = subprocess.run(
        command, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=True, timeout=120
    )
    assert "geheim" not in done.stdout + done.stderr
    return members(file)


@pytest.fixture
def secrets_everywhere(tmp_path: Path) -> tuple[Path, dict[str, str], list[str]]:
    """Put a secret into each place that can hold one; return configuration, environment, and further secrets."""
    token_hash, key = sha256(b"geheim-token").hexdigest(), KEY.read_text()
    files = {
        "kafka": "# geheim-file in a comment\nsasl.password=geheim-file\n"
        'sasl.jaas.config=org.x.PlainLoginModule required username="u" password="geheim-jaas";\n',
        "mqtt": "geheim-mqtt\n",
        "tokens": f"reader prometheus sha256:{token_hash}\n",
        "http.key": key,
        "kafka.key": key,
        "mac.key": MAC_KEY,
    }
    for name, text in files.items():
        (tmp_path / name).touch(0o640)
        (tmp_path / name).write_text(text)
    (tmp_path / "oscore").mkdir()
    configuration = write_configuration(tmp_path)
    oscore = json.loads(here("credentials", "urn:x", "--config", str(configuration)).stdout)
    key_lines = [line for line in key.splitlines() if not line.startswith("-----")]
    further = [MAC_KEY, oscore["secret_hex"], oscore["salt_hex"], token_hash, *key_lines]
    write_journal(tmp_path / "bin", further)
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "MY_TOKEN": "geheim-environment"}
    return configuration, environment, further


def write_configuration(folder: Path) -> Path:
    """Write a configuration with secrets in its properties, in a comment and in place of a path."""
    properties = {
        "sasl.username": "u",
        "sasl.password": IN_PLACES[0],
        "ssl.key.password": IN_PLACES[1],
        "sasl.jaas.config": 'x required password="geheim-jaas-inline";',
        "ssl.key.pem": IN_PLACES[3],
        "ssl.key.location": str(folder / "kafka.key"),
    }
    quote = json.JSONEncoder(ensure_ascii=False).encode
    written = ", ".join(f"{quote(name)} = {quote(value)}" for name, value in properties.items())
    configuration = folder / "oncegate.toml"
    configuration.write_text(
        f'# geheim-property\n[gateway]\nid = "gw1"\nstate_dir = "{folder}/state"\n'
        f'[kafka]\nbootstrap_servers = "127.0.0.1:1"\nproperties_file = "{folder}/kafka"\n'
        f'mac_key_file = "{folder}/mac.key"\n'
        f"properties = {{ {written} }}\n"
        f'[mqtt]\nusername = "u"\npassword_file = "{folder}/mqtt"\ntls = true\n'
        'tls_certificate_file = "/cert"\ntls_key_file = "geheim-misplaced"\n'
        f'[coap.oscore]\ncredentials_dir = "{folder}/oscore"\n'
        f'[http]\nbind = "127.0.0.1:1"\ntoken_file = "{folder}/tokens"\n'
        f'tls_certificate = "{CERTIFICATE}"\ntls_key = "{folder}/http.key"\n'
    )
    return configuration


def write_journal(folder: Path, further: list[str]) -> None:
    """Write a journalctl whose log contains all secrets."""
    logged = [
        *(secret for secret in (*IN_PLACES[:10], *further) if secret != "geheim-token"),  # only its hash is known
        "unknown token geheim-token.",
        "Authorization: Bearer geheim-bearer",
        "-----BEGIN PRIVATE KEY-----",
        "geheim-unnamed",
    ]
    folder.mkdir()
    journalctl = folder / "journalctl"
    script = "\n".join(["agent=ready", *logged])
    journalctl.write_text(f"#!/bin/sh\ncat <<'END'\n{script}\nEND\necho geheim-environment\n")
    journalctl.chmod(0o755)


def test_no_secret_is_in_the_bundle_wherever_it_may_have_been(
    secrets_everywhere: tuple[Path, dict[str, str], list[str]], tmp_path: Path
) -> None:
    configuration, environment, further = secrets_everywhere
    found = bundle(configuration, tmp_path / "bundle.tar.gz", environment)
    assert set(found) == MEMBERS
    text = "\n".join(found.values())
    for secret in (*IN_PLACES, *further):
        for form in (secret, json.dumps(secret)[1:-1], secret.encode().hex()):
            assert form not in text, secret
    assert "geheim" not in text
    assert "agent=ready" in found["journal.txt"]
    assert found["journal.txt"].count("(hidden)") >= len(IN_PLACES)
    values = {f"{one['section']}.{one['key']}": one["value"] for one in json.loads(found["configuration.json"])}
    assert values["mqtt.tls_key_file"] == "(hidden)"
    assert values["kafka.properties"]["sasl.username"] == "u"
    assert values["kafka.properties_file"] == str(tmp_path / "kafka")


def test_a_configuration_with_mistakes_is_described_without_what_stands_in_it(
    secrets_everywhere: tuple[Path, dict[str, str], list[str]], tmp_path: Path
) -> None:
    configuration, environment, _ = secrets_everywhere
    text = configuration.read_text().replace("[mqtt]\n", '[mqtt]\npassword = "geheim-typed"\nport = 0\n')
    configuration.write_text(text.replace('"127.0.0.1:1"', '"SASL_SSL://u:geheim-broker@/@127.0.0.1:1"', 1))
    found = bundle(configuration, tmp_path / "bundle.tar.gz", environment)
    assert set(found) == {"versions.json", "configuration.json"}
    mistakes = json.loads(found["configuration.json"])["mistakes"]
    assert [one["key"] for one in mistakes] == ["bootstrap_servers", "password", "port"]
    assert "geheim" not in "".join(found.values())


def test_it_holds_what_helps_and_no_event(running_agent: RunningAgent, tmp_path: Path) -> None:
    event = ("send", "temperature=21.5", "--device", "urn:bundle:private", "--id", "1")
    assert running_agent.oncegate(*event).returncode == 0
    found = bundle(running_agent.configuration, tmp_path / "bundle.tar.gz")
    assert set(found) == MEMBERS
    assert json.loads(found["versions.json"])["librdkafka"]
    assert json.loads(found["status.json"])["accepted"] >= 1
    assert json.loads(found["live.json"])["links"]["kafka"]["state"] == "unreachable"
    assert "oncegate_outbox_events" in found["metrics.txt"]
    assert {"clock", "broker", "space"} <= {finding["check"] for finding in json.loads(found["doctor.json"])}
    assert "urn:bundle:private" not in "".join(found.values())


def test_what_cannot_be_collected_says_why_and_the_rest_is_there(tmp_path: Path) -> None:
    configuration = configured(tmp_path, http="127.0.0.1:1", state=tmp_path / "none")
    found = bundle(configuration, tmp_path / "bundle.tar.gz")
    assert re.match("not collected: StoreError: .*there is no store yet", found["status.json"])
    assert re.match("not collected: AgentUnreachableError: .*refused", found["live.json"])
    assert json.loads(found["doctor.json"])


def test_the_file_is_new_and_for_its_owner_only(tmp_path: Path, running_agent: RunningAgent) -> None:
    file = tmp_path / "bundle.tar.gz"
    done = running_agent.oncegate("support-bundle", str(file), "--json")
    assert (done.returncode, stat.S_IMODE(file.stat().st_mode)) == (0, 0o600)
    result = json.loads(done.stdout)
    assert (result["file"], set(result["members"])) == (str(file), MEMBERS)
    again = running_agent.oncegate("support-bundle", str(file))
    assert (again.returncode, "File exists" in again.stderr) == (1, True)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer (hidden)"),
        ("bearer abcdefgh12345", "bearer (hidden)"),
        ("ssl.key.password = 'a b'", "ssl.key.password = (hidden)"),
        ("http://user:pw@host/x", "http://user:(hidden)@host/x"),
        ("http://user:p/w@x@host/x", "http://user:(hidden)@host/x"),
        ("Authorization: Basic dXNlcjpwdw==", "Authorization: Basic (hidden)"),
        ("GET /?token=abc 200", "GET /?token=(hidden) 200"),
        ("http.token_file: needed", "http.token_file: needed"),
        ("sasl.password=x y", "sasl.password=(hidden) y"),
        ('"client_secret": "a b"', '"client_secret": (hidden)'),
        ("the password was wrong", "the password was wrong"),
        ("pwd=abc;uid=1", "pwd=(hidden);uid=1"),
        ("x-api-key: abc, api_key='a b' apikey=abc", "x-api-key: (hidden), api_key=(hidden) apikey=(hidden)"),
        ("known", "(hidden)"),
        ("a3Jhbm8 a25vd24= 6b6e6f776e", "a3Jhbm8 (hidden)= (hidden)"),
        ("q83v +-/v q83v7w== abcdefef ABCDEFEF", "q83v +-/v (hidden)== (hidden) (hidden)"),
        ("it sent a-token. /a-token/ another-token", "it sent (hidden) (hidden) another-token"),
    ],
)
def test_what_looks_like_a_secret_is_removed(text: str, cleaned: str) -> None:
    token_digest = sha256(b"a-token").hexdigest()
    assert Redaction(["known", "a", "abcdefef", token_digest]).clean_text(text) == cleaned


def test_a_long_word_is_searched_in_linear_time() -> None:
    text = "a" * 300_000  # takes hours where each place is a start
    assert Redaction(["known"]).clean_text(text) == text
