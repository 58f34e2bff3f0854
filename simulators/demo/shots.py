"""Pictures of pages, taken by Chromium, with a palette so that they are small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from PIL import Image

from simulators.services import browser

COLOURS = 128
SCRIPT = Path(__file__).with_name("pictures.js")


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture of a page, once it shows these texts."""

    path: str
    url: str
    texts: Sequence[str]
    width: int = 1100
    height: int = 900
    scheme: str = "light"


def take(*shots: Shot, kill: tuple[int, Sequence[str]] | None = None) -> None:
    """Take the pictures at once; of pages whose process is killed, when they show these texts."""
    given: dict[str, object] = {"shots": [asdict(shot) for shot in shots]}
    if kill is not None:
        given["kill"] = {"pid": kill[0], "texts": kill[1]}
    browser.run(SCRIPT, given)
    for shot in shots:
        with Image.open(shot.path) as picture:
            smaller = picture.convert("RGB").quantize(COLOURS)
        smaller.save(shot.path, optimize=True)
        print(shot.path)
