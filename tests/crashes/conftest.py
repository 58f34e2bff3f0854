"""What tests of crashes require."""

from pathlib import Path

import pytest

from tests.support.disks.small_disk import small_disk


@pytest.fixture
def mountable(tmp_path: Path) -> None:
    """Skip the test where file systems cannot be mounted."""
    if not Path("/dev/fuse").exists():
        pytest.skip("there is no /dev/fuse")
    with small_disk(tmp_path / "probe", 1):
        pass
