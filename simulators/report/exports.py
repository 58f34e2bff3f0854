"""The verdict for programs of CI: JUnit XML, and a picture of the flow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from simulators.oracle.verdict import BROKEN, Verdict, sentence
from simulators.report.sankey import Station, picture


def write_junit(verdict: Verdict, name: str, path: Path) -> None:
    """Write each promise as a test case: passed, failed with its violations, or skipped where it was not judged."""
    skipped = 0 if verdict.judged else len(BROKEN) - len(verdict.faults)
    counts = {"tests": str(len(BROKEN)), "failures": str(len(verdict.faults)), "skipped": str(skipped)}
    suite = ET.Element("testsuite", {"name": f"oncegate-sim {name}", **counts})
    for kind, meaning in BROKEN.items():
        case = ET.SubElement(suite, "testcase", {"classname": f"oncegate-sim.{name}", "name": kind})
        if count := verdict.faults.get(kind):
            failure = ET.SubElement(case, "failure", {"message": f"{count:,} {meaning}"})
            failure.text = "\n".join(str(one) for one in verdict.violations if one.what == kind)
        elif not verdict.judged:
            ET.SubElement(case, "skipped", {"message": sentence(verdict)})
    ET.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def write_picture(stations: Sequence[Station], verdict: Verdict, path: Path) -> None:
    """Write the flow and the verdict as PNG."""
    path.write_bytes(picture(stations, sentence(verdict)))
