"""docs/cloud.md agrees with the job."""

import re

from cloud.stream.metrics import Metrics
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "cloud.md").read_text()


def test_the_metrics_of_the_page_are_those_of_the_job() -> None:
    shown = {
        f"{family.name}_total" if family.type == "counter" else family.name for family in Metrics().registry.collect()
    }
    assert set(re.findall(r"^\| `(oncegate_cloud_\w+)[{`]", PAGE, re.MULTILINE)) == shown
