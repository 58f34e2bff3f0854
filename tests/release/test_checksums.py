"""The signature of a release's checksums, as a user checks it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from release import checksums
from release.errors import ReleaseError
from tests.docs.pages import ROOT, blocks


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
