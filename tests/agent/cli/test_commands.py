"""The commands' output and exit status, for people and programs."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.cli.running import Run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("statsu",), "unknown command 'statsu'; did you mean status?"),
        (("xyzzy",), "unknown command 'xyzzy'; see oncegate --help"),
        (("help", "evnts"), "unknown command 'evnts'; did you mean events?"),
        (("status", "--jsno"), "unknown argument --jsno; did you mean --json?"),
        (("events", "--limt=5"), "unknown argument --limt; did you mean --limit?"),
        (("events", "extra"), "unknown argument extra\n"),
        (("--json", "status"), "unknown option --json; the options of a command follow its name"),
    ],
)
def test_wrong_words_are_named_with_the_nearest_right_one(words: tuple[str, ...], message: str, oncegate: Run) -> None:
    status, _, error = oncegate(*words)
    assert status == 2
    assert message in error


def test_the_configuration_may_be_named_before_the_command_or_after_it(file: Path, oncegate: Run) -> None:
    after = oncegate("config", "--config", str(file), "--json")
    assert after[0] == 0
    assert oncegate("--config", str(file), "config", "--json") == after
    assert oncegate(f"--config={file}", "config", "--json") == after
    assert oncegate("--config", "/none", "config", "--config", str(file), "--json") == after
    status, _, error = oncegate("--config", "/none", "config")
    assert (status, "/none: cannot be read" in error) == (2, True)


def test_a_command_imports_only_what_it_needs() -> None:
    code = (
        "import sys, agent.cli.main; from agent.cli import commands; commands.parse(['run']);"
        "print(sorted(name for name in sys.modules if name.startswith('agent.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(["agent.cli.commands", "agent.cli.failures", "agent.cli.main", "agent.cli.run"])


def test_config_shows_each_value_with_its_origin_and_no_secret(
    file: Path, oncegate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEGATE_STORE__MAX_BYTES", "2GiB")
    status, out, _ = oncegate("config", "--config", str(file), "--json")
    settings = {f"{entry['section']}.{entry['key']}": entry for entry in map(json.loads, out.splitlines())}
    assert status == 0
    assert "geheim" not in out
    assert settings["kafka.properties"]["value"] == {
        "security.protocol": "SASL_SSL",
        "sasl.password": "(hidden)",
        "ssl.key.pem": "(hidden)",
    }
    assert [(settings[key]["value"], settings[key]["origin"]) for key in ("gateway.id", "store.max_bytes")] == [
        ("gw1", f"{file}:2"),
        (2 << 30, "ONCEGATE_STORE__MAX_BYTES"),
    ]
    assert settings["receipts.poll_seconds"]["origin"] == "default"
    assert settings["http.token_file"]["value"] is None


def test_an_output_that_cannot_be_written_is_a_failure_in_one_line(file: Path) -> None:
    command = [sys.executable, "-m", "agent.cli.main", "--config", str(file), "config"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "oncegate: the output cannot be written: No space left on device\n")


def test_a_store_that_is_not_ours_to_read_is_no_traceback(
    file: Path, oncegate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)  # root, who may run the tests, can read everything
    for command in ("status", "events", "verify"):
        status, _, message = oncegate(command, "--config", str(file))
        assert status == 1
        assert "Permission denied; run it as root" in message


def test_a_start_where_the_folder_cannot_be_made_is_refused_in_a_sentence(file: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    file.write_text(file.read_text().replace(f"{tmp_path}/state", f"{tmp_path}/taken/state"))
    command = (sys.executable, "-m", "agent.cli.main", "run", "--config", str(file))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert f"oncegate: {tmp_path}/taken/state: Not a directory" in done.stderr
    assert "Traceback" not in done.stderr
