"""The notebook of the documents, executed without Jupyter."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

from tests.docs.pages import ROOT

FILE = ROOT / "docs" / "examples" / "table.ipynb"
Notebook = dict[str, Any]


def read() -> Notebook:
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


def write(notebook: Notebook) -> None:
    FILE.write_text(json.dumps(notebook, indent=1) + "\n")


def _png(figure: Any) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", bbox_inches="tight", metadata={"Software": None})
    return content.getvalue()


def _output(picture: bytes) -> dict[str, object]:
    text = base64.b64encode(picture).decode()
    return {"output_type": "display_data", "metadata": {}, "data": {"image/png": text, "text/plain": ["<Figure>"]}}
