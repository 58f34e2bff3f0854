import os
from pathlib import Path

import pytest

from contract.files import SECRET_BYTES_MAX, PropertiesError, read_properties


def _write(folder: Path, text: str | bytes, mode: int = 0o600) -> Path:
    file = folder / "kafka.properties"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    file.chmod(mode)
    return file


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_lines_of_names_and_values_are_read(tmp_path: Path, mode: int) -> None:
    file = _write(tmp_path, "# secrets\n\nsasl.password = a=b\r\n security.protocol=SASL_SSL\n", mode)
    assert read_properties(file) == {"sasl.password": "a=b", "security.protocol": "SASL_SSL"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_file_to_which_others_have_rights_is_refused(tmp_path: Path, mode: int) -> None:
    file = _write(tmp_path, "sasl.password=hidden", mode)
    with pytest.raises(PropertiesError, match=rf"others may read it \(mode {mode:o}\); run: chmod 600") as refused:
        read_properties(file)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a=b\nhidden\n", r":2: expected name=value"),
        ("=hidden\n", r":1: expected name=value"),
        (b"hidden=\xff", "not UTF-8 text"),
        ("a=hidden\n" * (SECRET_BYTES_MAX // 8), "larger than 65536 bytes"),
    ],
)
def test_what_is_no_such_file_is_told_without_its_content(tmp_path: Path, text: str | bytes, reason: str) -> None:
    with pytest.raises(PropertiesError, match=reason) as refused:
        read_properties(_write(tmp_path, text))
    assert "hidden" not in str(refused.value)


def test_what_would_make_its_reader_wait_is_refused(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    for path in (fifo, Path("/dev/null"), tmp_path):
        with pytest.raises(PropertiesError, match="not a regular file"):
            read_properties(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PropertiesError, match="none: No such file"):
        read_properties(tmp_path / "none")
