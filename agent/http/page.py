"""The files that need no token: those of the status page, and the description of the interface (OpenAPI)."""

from __future__ import annotations

from importlib.resources import files

from agent.http.events import ReadBody
from agent.http.head import Head
from agent.http.response import Response
from agent.http.site import Handler, Resources

_FILES = {
    "/": ("page_files/index.html", "text/html; charset=utf-8"),
    "/page.css": ("page_files/page.css", "text/css; charset=utf-8"),
    "/page.js": ("page_files/page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("page_files/icon.svg", "image/svg+xml"),
    "/api/v1/openapi.json": ("openapi.json", "application/json"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_FIELDS = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


def public_resources() -> Resources:
    """Return the files' resources; they hold no data of the gateway, and need no token."""
    return {path: {"GET": _serve(name, media_type)} for path, (name, media_type) in _FILES.items()}


def _serve(name: str, media_type: str) -> Handler:
    async def serve(_: Head, __: ReadBody) -> Response:
        body = files("agent.http").joinpath(name).read_bytes()  # 20 kB, rarely requested
        return Response(200, body, media_type, _FIELDS)

    return serve
