"""The file of the audit's metrics."""

import os
from pathlib import Path

from cloud.auditing import metrics
from tests.cloud.auditing.found import WHOLE

UMASK = 0o027
"""That of `oncegate-audit.service`."""


def test_the_exporter_of_another_user_reads_the_metrics_whatever_the_umask(tmp_path: Path) -> None:
    file = tmp_path / "audit.prom"
    before = os.umask(UMASK)
    try:
        for _ in range(2):
            metrics.write(WHOLE, file)
    finally:
        os.umask(before)
    assert oct(file.stat().st_mode)[-3:] == "644"
    assert 'oncegate_audit_labels{status="accepted"} 3.0' in file.read_text()
    assert list(tmp_path.iterdir()) == [file]
