"""Files as the service's user sees them, and secrets that others see: `check`, `doctor` and `credentials` say so."""

import json
import os
from collections.abc import Iterator
from grp import getgrgid
from pathlib import Path
from pwd import getpwnam
from tempfile import TemporaryDirectory

import pytest

from agent.cli.doctor.files import check_hidden
from agent.config.settings import HttpSettings
from tests.agent.cli.running import Run

NOBODY = getpwnam("nobody")
GROUP = getgrgid(NOBODY.pw_gid).gr_name
CERTIFICATE = Path(__file__).parents[1] / "http" / "localhost.crt"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root sees what another user may do")
PLAIN = (
    'properties_file = "{closed}"\nproperties = { "security.protocol" = "SASL_PLAINTEXT", "sasl.mechanism" = "PLAIN" }'
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that any user may enter, unlike pytest's own, with the state folder of the service's user."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "state").mkdir()
        if os.geteuid() == 0:
            os.chown(folder / "state", NOBODY.pw_uid, NOBODY.pw_gid)
        yield folder


def configure(folder: Path, kafka: str = "", more: str = "") -> Path:
    file = folder / "oncegate.toml"
    file.write_text(
        f'[gateway]\nid = "gw1"\nstate_dir = "{folder}/state"\n'
        f'[kafka]\nbootstrap_servers = "127.0.0.1:1"\n{kafka}\n[coap]\nenabled = false\n{more}'
    )
    return file


def findings(oncegate: Run, file: Path, check: str) -> list[dict[str, str]]:
    _, out, _ = oncegate("doctor", "--json", "--config", str(file))
    return [one for one in map(json.loads, out.splitlines()) if one["check"] == check]


@AS_ROOT
@pytest.mark.parametrize("closed", ["file", "folder"])
def test_a_file_that_the_service_may_not_read_is_a_mistake_though_root_may(
    closed: str, folder: Path, oncegate: Run
) -> None:
    inner = folder / "tls"
    inner.mkdir()
    authority = inner / "ca.pem"
    authority.write_bytes(CERTIFICATE.read_bytes())
    (authority if closed == "file" else inner).chmod(0o600)
    file = configure(folder, f'properties."security.protocol" = "SSL"\nproperties."ssl.ca.location" = "{authority}"')
    status, _, error = oncegate("check", "--config", str(file))
    assert status == 2
    assert f":6: [kafka] properties: {authority}: the service's user nobody may not read it; " in error
    (finding,) = findings(oncegate, file, "files")
    assert finding["condition"] == "wrong"
    assert f"chgrp {GROUP} {authority if closed == 'file' else inner} && chmod " in finding["hint"]
    os.chown(inner, -1, NOBODY.pw_gid)
    os.chown(authority, -1, NOBODY.pw_gid)
    inner.chmod(0o750)
    authority.chmod(0o640)
    assert oncegate("check", "--config", str(file))[0] == 0
    assert findings(oncegate, file, "files") == []


def test_a_file_that_the_unit_hides_is_a_warning_where_there_is_a_unit(tmp_path: Path) -> None:
    unit = tmp_path / "oncegate.service"
    for place, hidden in (("/home/pi/tls.pem", True), ("/tmp/tls.pem", True), ("/etc/oncegate/tls.pem", False)):
        sections = {"http": HttpSettings(tls_certificate=Path(place))}
        assert list(check_hidden(sections, [unit])) == []
        unit.touch()
        assert [place in finding.text for finding in check_hidden(sections, [unit])] == [True] * hidden
        unit.unlink()


@AS_ROOT
def test_credentials_are_made_for_the_service_or_the_command_is_named(folder: Path, oncegate: Run) -> None:
    place = folder / "credentials"
    file = configure(folder, more=f'[coap.oscore]\ncredentials_dir = "{place}"\n')
    file.write_text(file.read_text().replace("enabled = false", "enabled = true"))
    status, _, error = oncegate("credentials", "urn:a", "--config", str(file))
    assert (status, "cannot read" in error) == (0, False)
    found = place.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (0, NOBODY.pw_gid, 0o750)
    assert oncegate("check", "--config", str(file))[0] == 0
    assert [one["text"] for one in findings(oncegate, file, "oscore")] == ["1 of 1 OSCORE credentials usable"]

    os.chown(place, 0, 0)
    place.chmod(0o755)
    _, _, error = oncegate("credentials", "urn:b", "--config", str(file))
    assert f"the service's user cannot read it: chgrp -R {GROUP} {place} && " in error
    os.chown(place / "urn_a.toml", 0, 0)
    status, shown, error = oncegate("check", "--config", str(file))
    assert (status, shown.count("cannot be read: Permission denied"), error) == (0, 2, ""), "the agent starts"
    (finding,) = findings(oncegate, file, "oscore")
    assert finding["condition"] == "wrong"
    assert finding["text"].startswith("0 of 2 OSCORE credentials usable: ")


@AS_ROOT
def test_the_key_of_a_gateway_and_the_next_one_are_made_for_the_service(folder: Path, oncegate: Run) -> None:
    os.chown(folder, -1, NOBODY.pw_gid)
    key = folder / "mac.key"
    file = configure(folder, f'mac_key_file = "{key}"')
    status, _, error = oncegate("check", "--config", str(file))
    assert status == 2
    assert f"mac_key_file: {key} cannot be used" in error
    status, line, error = oncegate("credentials", "--gateway", "--config", str(file))
    assert (status, line) == (0, f"gw1,{key.read_text()}")
    assert "restart the agent" in error
    assert (key.stat().st_gid, key.stat().st_mode & 0o777) == (NOBODY.pw_gid, 0o640)
    assert oncegate("check", "--config", str(file))[0] == 0
    status, line, error = oncegate("credentials", "--gateway", "--config", str(file))
    assert (status, line) == (0, f"gw1,{Path(f'{key}.next').read_text()}")
    assert f"mv {key}.next {key}" in error
    status, line, error = oncegate("credentials", "--gateway", "--config", str(file))
    assert (status, line) == (2, "")
    assert f"{key}.next exists: rename it" in error


@pytest.mark.parametrize(
    ("kafka", "more", "text"),
    [
        ('properties = { "sasl.password" = "x" }', "", "the passwords in kafka.properties: others may read or change"),
        ('properties_file = "{open}"', "", "kafka.properties_file: others may read or change"),
        ("", '[mqtt]\nenabled = true\nusername = "u"\npassword_file = "{open}"\n', "mqtt.password_file: others may"),
        (PLAIN, "", "the password is sent unencrypted (SASL_PLAINTEXT, PLAIN)"),
        ('properties = { "enable.ssl.certificate.verification" = false }', "", "anybody on the way can be the broker"),
        (
            "",
            '[mqtt]\nenabled = true\nhost = "broker.invalid"\nusername = "u"\npassword_file = "{closed}"\n',
            "mqtt: the password is sent unencrypted to broker.invalid",
        ),
        ("", '[http]\nbind = "0.0.0.0:0"\ntoken_file = "{empty}"\n', "http: tokens are sent unencrypted to 0.0.0.0:0"),
        ('properties_file = "{closed}"', "", ""),
    ],
)
def test_a_secret_that_others_can_read_is_a_warning(
    kafka: str, more: str, text: str, folder: Path, oncegate: Run
) -> None:
    places = {name: folder / name for name in ("open", "closed", "empty")}
    for name, place in places.items():
        place.write_text("" if name == "empty" else "sasl.username=u\nsasl.password=p\n")
        place.chmod(0o644 if name == "open" else 0o640)
        if os.geteuid() == 0:
            os.chown(place, -1, NOBODY.pw_gid)
    for name, place in places.items():
        kafka, more = (part.replace(f"{{{name}}}", str(place)) for part in (kafka, more))
    file = configure(folder, kafka, more)
    status, out, error = oncegate("check", "--json", "--config", str(file))
    assert (status, error) == (0, ""), out
    warnings = [one.removeprefix("secrets: ") for one in json.loads(out)["warnings"]]
    assert [text in one for one in warnings] == ([True] if text else [])
    assert [text in one["text"] for one in findings(oncegate, file, "secrets")] == ([True] if text else [])
