"""The installation of a gateway: a clean environment from this checkout, without pyspark and without Java."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.heavy
def test_a_gateway_installs_without_pyspark_and_java(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = tmp_path / "gateway"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip"]
    subprocess.run([*pip, "install", "-q", "-c", str(ROOT / "constraints.txt"), str(_checkout(tmp_path))], check=True)
    installed = subprocess.run([*pip, "list", "--format=freeze"], check=True, capture_output=True, text=True).stdout
    assert "pyspark" not in installed
    without_java = {"PATH": str(environment / "bin"), "HOME": str(tmp_path)}
    command = environment / "bin" / "oncegate"
    version = subprocess.run([command, "version"], check=True, capture_output=True, text=True, env=without_java).stdout
    assert version.startswith("oncegate ")
    imports = "import agent.service, sys; sys.exit('pyspark' in sys.modules)"
    subprocess.run([environment / "bin" / "python", "-c", imports], check=True, env=without_java, cwd=tmp_path)
    with capsys.disabled():
        print(f"\ngateway installation: {_megabytes(environment):.1f} MB with pip, {installed.count(chr(10))} packages")


def _checkout(tmp_path: Path) -> Path:
    """Copy the tracked sources, so that building leaves nothing in the checkout."""
    copy = tmp_path / "checkout"
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    return copy


def _megabytes(folder: Path) -> float:
    return sum(os.lstat(file).st_size for file in folder.rglob("*") if not file.is_symlink()) / 1e6
