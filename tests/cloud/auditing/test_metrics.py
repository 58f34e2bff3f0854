"""The file of the audit's metrics."""

import os
import re
from pathlib import Path

from cloud.auditing import metrics
from tests.cloud.auditing.found import WHOLE
from tests.monitoring.test_monitoring import JOB, METRIC

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


def test_the_alerts_on_the_audit_read_what_it_writes(tmp_path: Path) -> None:
    metrics.write(WHOLE, tmp_path / "audit.prom")
    written = set(re.findall(r"^(oncegate_audit_\w+)", (tmp_path / "audit.prom").read_text(), re.MULTILINE))
    named = {name for expression in JOB.alerts() for name in METRIC.findall(expression) if "_audit_" in name}
    assert len(named & written) == len(named) == 3
