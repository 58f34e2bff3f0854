import base64
import io
import json
import os
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from pyspark.sql import SparkSession

from tests.cloud.made_rows import day, write_table
from tests.docs.pages import ROOT

pytestmark = pytest.mark.spark
FILE = ROOT / "docs" / "examples" / "table.ipynb"
RENEW = "ONCEGATE_RENEW_NOTEBOOK"
"""Set to 1, it has the test write the pictures that it has drawn into the notebook."""
Notebook = dict[str, Any]


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_the_notebook_draws_its_pictures_on_a_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(spark, day(), tmp_path / "events")
    monkeypatch.chdir(tmp_path)
    executed = read_notebook()
    pictures = execute(executed)
    assert [len(cell["outputs"]) for cell in code_cells(executed)] == [0, 1, 1, 1]
    assert all(picture.startswith(b"\x89PNG") and len(picture) > 5_000 for picture in pictures)
    if os.environ.get(RENEW):
        write_notebook(executed)
    shown = code_cells(read_notebook())
    assert [len(cell["outputs"]) for cell in shown] == [0, 1, 1, 1], f"renew it with {RENEW}=1"


def read_notebook() -> Notebook:
    notebook: Notebook = json.loads(FILE.read_text())
    return notebook


def code_cells(notebook: Notebook) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def execute(notebook: Notebook) -> list[bytes]:
    """Execute the code cells in one namespace; the figures of each become its outputs. Return the pictures (PNG)."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    pictures = []
    with mpl.rc_context():
        mpl.use("agg")
        for number, cell in enumerate(code_cells(notebook), start=1):
            exec(compile("".join(cell["source"]), f"{FILE.name}, cell {number}", "exec"), namespace)
            drawn = [_png(plt.figure(figure)) for figure in plt.get_fignums()]
            plt.close("all")
            cell["execution_count"], cell["outputs"] = number, [_output(picture) for picture in drawn]
            pictures += drawn
    return pictures


def write_notebook(notebook: Notebook) -> None:
    FILE.write_text(json.dumps(notebook, indent=1) + "\n")


def _png(figure: Any) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", bbox_inches="tight", metadata={"Software": None})
    return content.getvalue()


def _output(picture: bytes) -> dict[str, object]:
    text = base64.b64encode(picture).decode()
    return {"output_type": "display_data", "metadata": {}, "data": {"image/png": text, "text/plain": ["<Figure>"]}}
