"""The documentation site is built without warnings, and its pages load nothing from elsewhere."""

import re
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.support import browser
from tests.support.commands import output_of


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = (sys.executable, "-m", "mkdocs", "build", "--site-dir", folder, "--config-file", ROOT / "mkdocs.yml")
    output_of(*command, cwd=ROOT, environment={"NO_MKDOCS_2_WARNING": "1"})
    return folder


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """Serve the site, since a browser does not search in files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.heavy
def test_pages_are_readable_on_a_phone_and_on_a_laptop(site: Path, address: str) -> None:
    pages = sorted(page.name for page in site.glob("*.html") if page.name != "404.html")
    seen = browser.run(Path(__file__).with_name("site.js"), {"url": address, "pages": pages})
    assert any("configuration.html" in link for link in seen.pop("found"))
    assert len(seen) == 2 * len(pages)
    assert {page: faults for page, faults in seen.items() if any(faults.values())} == {}


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loaded = [
        (page.name, element)
        for page in site.rglob("*.html")
        for element in re.findall(
            r'<(?:script|img|iframe|source|link)\b[^>]*(?:src|href)="(?:https?:)?//[^>]*>', page.read_text()
        )
    ]
    assert loaded == []
