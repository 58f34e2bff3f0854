"""The audit's metrics, in a file for Prometheus' node exporter, since no process remains to be scraped."""

from __future__ import annotations

import time
from pathlib import Path

from cloud.auditing.findings import Findings
from cloud.auditing.sections import STATUSES

MODE = 0o644
"""The exporter runs as another user, whatever the umask of the audit's unit."""


def write(findings: Findings, path: Path) -> None:
    """Replace the file in one step; docs/cloud.md explains each metric."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    labels = Gauge("oncegate_audit_labels", "Labels of all audits, by status", ["status"], registry=registry)
    for status, count in findings.counts.items():
        labels.labels(status).set(count)
    sections = Gauge(
        "oncegate_audit_sections", "Sections of the gateways' hash chains, by status", ["status"], registry=registry
    )
    for status in STATUSES:
        sections.labels(status).set(findings.sections[status].sections if status in findings.sections else 0)
    Gauge("oncegate_audit_findings", "Labels and events that are not as they should be", registry=registry).set(
        sum(findings.faults().values())
    )
    Gauge("oncegate_audit_timestamp_seconds", "Time of the end of the last audit", registry=registry).set(time.time())
    written = path.with_name(f"{path.name}.new")  # the exporter reads *.prom alone
    written.write_bytes(generate_latest(registry))
    written.chmod(MODE)
    written.replace(path)
