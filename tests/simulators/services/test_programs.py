"""External programs are found, or reported with the command that installs them."""

import pytest

from simulators.services.error import ServiceError
from simulators.services.install import debian, programs


@pytest.mark.parametrize("program", programs.PACKAGES)
def test_the_setup_has_brought_each(program: str) -> None:
    assert programs.require(program) == programs.find(program)


def test_a_missing_one_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(programs.PACKAGES, "no-such-program", "no-such-package")
    with pytest.raises(ServiceError, match="no no-such-program; run: sudo apt-get install no-such-package"):
        programs.require("no-such-program")


def test_who_may_not_install_learns_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ServiceError, match="sudo apt-get install one two"):
        debian.install("one", "two")
