"""Versions, notes, archives and checksums of a release, and the services that documents and compose file name."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from release import checksums
from release.changelog import Section, check_tag, section_of
from release.errors import ReleaseError
from tests.docs.pages import PAGES, ROOT, blocks, name

JARS = tomllib.loads((ROOT / "simulators" / "services" / "install" / "jars.toml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DECISION = (ROOT / "docs" / "decisions" / "0002-pinned-parts.md").read_text()


def jars(group: str) -> dict[str, str]:
    """Return the versions of the jars that a set of jars.toml asks for, by their names."""
    chosen = JARS[group]
    words = [jar.split(":") for key in ("roots", "alone", "overrides") for jar in chosen.get(key, [])]
    return {artifact: version for _, artifact, version in words}


KAFKA = jars("broker")["kafka_2.13"]
OLDEST_KAFKA = jars("broker_3_9")["kafka_2.13"]


def decided(part: str) -> str:
    """Return the version in the decision's row that has this part in its first cell."""
    [version] = re.findall(rf"^\| [^|]*{re.escape(part)}[^|]* \| (?:`[\w.-]+` )?([\d.]+)", DECISION, re.MULTILINE)
    return str(version)


def test_the_compose_file_starts_the_broker_and_the_database_that_the_tests_run() -> None:
    services = yaml.safe_load((ROOT / "packaging" / "container" / "compose.yaml").read_text())["services"]
    images = {service["image"] for service in services.values() if "image" in service}
    assert images == {f"apache/kafka:{KAFKA}", f"postgres:{decided('PostgreSQL')}"}


def test_no_document_names_another_release_of_kafka() -> None:
    named = {
        (name(page), version) for page in PAGES for version in re.findall(r"Kafka (\d+\.\d+\.\d+)", page.read_text())
    }
    assert {version for _, version in named} == {KAFKA, OLDEST_KAFKA}, named


def test_a_gateway_installs_all_that_the_agent_needs() -> None:
    text = (ROOT / "packaging" / "gateway.txt").read_text()
    chosen = re.findall(r"^([\w.-]+)==", text, re.MULTILINE)
    needed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["oscore"]]
    assert {re.split("[<>=;]", requirement)[0] for requirement in needed} <= set(chosen)


CHANGELOG = """# Changelog

## [0.2.0] - unreleased

### Added

- One.

## [0.1.0] - 2026-11-23

- First.
"""


def test_a_section_ends_where_the_next_begins() -> None:
    assert section_of(CHANGELOG, "0.2.0") == Section("0.2.0", "unreleased", "### Added\n\n- One.\n")
    assert section_of(CHANGELOG, "0.1.0") == Section("0.1.0", "2026-11-23", "- First.\n")


@pytest.mark.parametrize("changelog", ["", CHANGELOG, "## [0.3.0] - 2026-11-23\n\n## [0.2.0] - unreleased\n- One.\n"])
def test_a_version_without_notes_is_not_released(changelog: str) -> None:
    with pytest.raises(ReleaseError, match=r"no section about 0.3.0; write `## \[0.3.0\] - DATE`"):
        section_of(changelog, "0.3.0")


@pytest.mark.parametrize(
    ("version", "tag", "reason"),
    [
        ("0.1.0", "v0.2.0", r"the tag is v0.2.0, and the version in pyproject.toml is 0.1.0; expected v0.1.0"),
        ("0.2.0", "v0.2.0", r"0.2.0 is unreleased; write the date of its release"),
    ],
)
def test_a_tag_needs_the_version_and_a_date(version: str, tag: str, reason: str) -> None:
    with pytest.raises(ReleaseError, match=reason):
        check_tag(section_of(CHANGELOG, version), tag)


def test_a_tag_of_the_version_with_a_date_is_taken() -> None:
    check_tag(section_of(CHANGELOG, "0.1.0"), "v0.1.0")


VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PARTS = ("agent", "cloud", "contract", "packaging", "release", "simulators", "systemd", ".github")
SUFFIXES = {".py", ".sh", ".service", ".yml", ".yaml", ".html", ".js", ".1", ""}


def test_the_version_stands_in_pyproject_only() -> None:
    files = [file for part in PARTS for file in (ROOT / part).rglob("*") if file.is_file() and file.suffix in SUFFIXES]
    assert len(files) > 200
    assert [str(file) for file in files if f'"{VERSION}"' in file.read_text(errors="replace")] == []


def test_the_documents_name_this_version() -> None:
    assert f"Version {VERSION} " in (ROOT / "README.md").read_text()
    assert f"./dist/oncegate_{VERSION}+deb13_arm64.deb" in (ROOT / "docs" / "operations.md").read_text()


def create_key(file: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", file], check=True)
    return file


def verify(folder: Path) -> bool:
    """Run the command of docs/releasing.md."""
    (command,) = (block for block in blocks(ROOT / "docs" / "releasing.md", "sh") if "-Y verify" in block)
    return subprocess.run(command, shell=True, cwd=folder, capture_output=True, check=False).returncode == 0


def test_only_checksums_that_the_projects_key_has_signed_are_genuine(tmp_path: Path) -> None:
    key, other = create_key(tmp_path / "key"), create_key(tmp_path / "other")
    folder = tmp_path / "dist"
    folder.mkdir()
    (folder / "oncegate.deb").write_bytes(b"package")
    (folder / "allowed_signers").write_text(f"releases@oncegate {key.with_suffix('.pub').read_text()}")
    checksums.write(folder)
    checksums.sign(folder, key)
    assert verify(folder)
    (folder / "oncegate.deb").write_bytes(b"another")
    assert not verify(folder)
    (folder / "SHA256SUMS.sig").unlink()
    checksums.write(folder)
    checksums.sign(folder, other)
    assert not verify(folder)


def test_a_key_that_cannot_sign_ends_the_release(tmp_path: Path) -> None:
    checksums.write(tmp_path)
    with pytest.raises(ReleaseError, match="SHA256SUMS is not signed"):
        checksums.sign(tmp_path, tmp_path / "none")
