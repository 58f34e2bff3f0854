from pathlib import Path

import pytest

from cloud import command_line
from cloud.settings import parse

REQUIRED = ("--bootstrap-servers", "k:9092", "--table", "/t", "--checkpoint", "/c")
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b=c d";'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "kafka.properties"
    made.touch(mode=0o600)
    return made


def test_a_file_holds_properties_with_spaces_and_quotes_and_an_argument_stands_above_it(file: Path) -> None:
    file.write_text(f"# of the plant\n\nsecurity.protocol=SASL_SSL\n  sasl.jaas.config = {JAAS}\nfetch.min.bytes=1\n")
    given = parse([*REQUIRED, "--kafka-properties", str(file), "--kafka", "fetch.min.bytes=2"])
    assert given.kafka.properties == {"security.protocol": "SASL_SSL", "sasl.jaas.config": JAAS, "fetch.min.bytes": "2"}


@pytest.mark.guarantee(5)
@pytest.mark.parametrize(
    "name", ["sasl.jaas.config", "ssl.key.password", "ssl.keystore.key", "sasl.password", "ssl.key.pem"]
)
def test_a_secret_is_refused_as_an_argument_and_not_repeated(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([*REQUIRED, "--kafka", f"{name}=hidden"])
    told = capsys.readouterr().err
    assert "--kafka-properties" in told
    assert "hidden" not in told


def test_a_file_that_cannot_be_used_is_refused_without_its_content(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("a=b\nhidden\n")
    with pytest.raises(SystemExit):
        parse([*REQUIRED, "--kafka-properties", str(file)])
    told = capsys.readouterr().err
    assert ":2: expected name=value" in told
    assert "hidden" not in told


def test_a_credential_of_systemd_may_show_a_right_of_the_group(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An access list allows the unit's user to read it, and the mode shows the list's mask as the group's bits."""
    file.write_text("ssl.key.password=hidden\n")
    file.chmod(0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(file.parent))
    assert parse([*REQUIRED, "--kafka-properties", str(file)]).kafka.properties == {"ssl.key.password": "hidden"}
    (file.parent / "secret_kafka").write_text("ssl.key.password=named\n")
    (file.parent / "secret_kafka").chmod(0o400)
    assert parse([*REQUIRED, "--kafka-properties", "credential:kafka"]).kafka.properties == {
        "ssl.key.password": "named"
    }
    sink = ("--sink", "postgres", "--connection", "credential:postgres")
    settings = parse([*REQUIRED[:2], "--table", "t", *REQUIRED[4:], *sink])
    assert settings.tables.connection == file.parent / "secret_postgres"
    file.chmod(0o444)
    with pytest.raises(SystemExit):
        parse([*REQUIRED, "--kafka-properties", str(file)])


def test_outside_the_units_a_credential_is_the_file_that_systemd_would_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert command_line.secret_path("credential:kafka") == Path("/etc/oncegate/cloud-secrets/kafka")


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b"])
def test_a_credential_that_is_no_name_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([*REQUIRED, "--kafka-properties", f"credential:{name}"])
    assert "expected credential:NAME" in capsys.readouterr().err
