"""An sdist depends on its content only."""

import os
import tarfile
from pathlib import Path

from release import checksums, sdist

EPOCH = 1_700_000_000


def pack(folder: Path, names: list[str], mode: int, mtime: int) -> Path:
    """Pack files as an sdist, in this order, as another machine would."""
    folder.mkdir()
    archive = folder / "oncegate-1.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        for name in names:
            file = folder / name
            file.write_text(f"content of {name}\n")
            file.chmod(mode | (0o100 if name.endswith(".sh") else 0))
            os.utime(file, (mtime, mtime))
            packed.add(file, f"oncegate-1/{name}")
    return archive


def test_order_times_rights_and_owners_leave_no_trace(tmp_path: Path) -> None:
    one = pack(tmp_path / "one", ["a.py", "b.sh"], 0o664, 1_800_000_000)
    other = pack(tmp_path / "other", ["b.sh", "a.py"], 0o600, 1_600_000_000)
    assert one.read_bytes() != other.read_bytes()
    for archive in (one, other):
        sdist.normalize(archive, EPOCH)
    assert one.read_bytes() == other.read_bytes()
    with tarfile.open(one) as packed:
        members = [(member.name, member.mode, member.mtime, member.uname) for member in packed]
        assert members == [("oncegate-1/a.py", 0o644, EPOCH, ""), ("oncegate-1/b.sh", 0o755, EPOCH, "")]
        script = packed.extractfile("oncegate-1/b.sh")
        assert script is not None
        assert script.read() == b"content of b.sh\n"


def test_checksums_name_each_file_once(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "a").write_bytes(b"abc")
    checksums.write(tmp_path)
    checksums.write(tmp_path)  # its own file is not in it
    assert (tmp_path / checksums.NAME).read_text() == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n"
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b\n"
    )
