"""The files that need no token: those of the status page, and the description of the interface (OpenAPI)."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from agent.http.events import ReadBody
from agent.http.head import Head
from agent.http.response import NO_OTHER_SITE, Response
from agent.http.site import PAGE_FILES, Handler, Resources

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_FIELDS = (
    ("Content-Security-Policy", POLICY),
    ("Referrer-Policy", "no-referrer"),
    *NO_OTHER_SITE,
)


def public_resources() -> Resources:
    """Return the files' resources; they hold no data of the gateway, and need no token."""
    names = sorted(file.name for file in files("agent.http").joinpath("page_files").iterdir())
    parts = {name: media_type for name in names if (media_type := _TYPES.get(Path(name).suffix))}
    return {
        "/": {"GET": _serve("page_files/index.html", "text/html; charset=utf-8")},
        **{
            f"{PAGE_FILES}{name}": {"GET": _serve(f"page_files/{name}", media_type)}
            for name, media_type in parts.items()
        },
        "/api/v1/openapi.json": {"GET": _serve("openapi.json", "application/json")},
    }


def _serve(name: str, media_type: str) -> Handler:
    async def serve(_: Head, __: ReadBody) -> Response:
        body = files("agent.http").joinpath(name).read_bytes()  # some kB, rarely requested
        return Response(200, body, media_type, _FIELDS)

    return serve
