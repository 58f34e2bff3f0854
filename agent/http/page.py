"""The files that need no token: those of the status page, and the description of the interface (OpenAPI)."""

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from agent.http.application import PAGE_FILES, Handler, Resources
from agent.http.events import ReadBody
from agent.http.head import Head
from agent.http.response import NO_OTHER_SITE, Response

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
VIAS = b'"the ways in"'
"""In the page and in the description: the protocols of the ways in, in the form of each."""
_FIELDS = (
    ("Content-Security-Policy", POLICY),
    ("Referrer-Policy", "no-referrer"),
    *NO_OTHER_SITE,
)


def public_resources(vias: Sequence[str]) -> Resources:
    """Return the files' resources; they hold no data of the gateway but its ways in, and need no token."""
    options = "".join(f"<option>{escape(via)}</option>" for via in vias)
    names = sorted(file.name for file in files("agent.http").joinpath("page_files").iterdir())
    parts = {name: media_type for name in names if (media_type := _TYPES.get(Path(name).suffix))}
    return {
        "/": {"GET": _serve("page_files/index.html", "text/html; charset=utf-8", options)},
        **{
            f"{PAGE_FILES}{name}": {"GET": _serve(f"page_files/{name}", media_type)}
            for name, media_type in parts.items()
        },
        "/api/v1/openapi.json": {"GET": _serve("openapi.json", "application/json", ", ".join(map(json.dumps, vias)))},
    }


def _serve(name: str, media_type: str, vias: str = "") -> Handler:
    """Return the handler of a file; `vias` replaces VIAS in it."""

    async def serve(_: Head, __: ReadBody) -> Response:
        body = files("agent.http").joinpath(name).read_bytes()  # some kB, rarely requested
        return Response(200, body.replace(VIAS, vias.encode()) if vias else body, media_type, _FIELDS)

    return serve
