"""The notebook of docs/table.md runs on a table, and shows the pictures that its code draws."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cloud.made_rows import day, write_table
from tests.docs import notebook

pytestmark = pytest.mark.spark
RENEW = "ONCEGATE_RENEW_NOTEBOOK"
"""Set to 1, it has the test write the pictures that it has drawn into the notebook."""


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_the_notebook_draws_its_pictures_on_a_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(spark, day(), tmp_path / "events")
    monkeypatch.chdir(tmp_path)
    executed = notebook.read()
    pictures = notebook.execute(executed)
    assert [len(cell["outputs"]) for cell in notebook.code_cells(executed)] == [0, 1, 1, 1]
    assert all(picture.startswith(b"\x89PNG") and len(picture) > 5_000 for picture in pictures)
    if os.environ.get(RENEW):
        notebook.write(executed)
    shown = notebook.code_cells(notebook.read())
    assert [len(cell["outputs"]) for cell in shown] == [0, 1, 1, 1], f"renew it with {RENEW}=1"
