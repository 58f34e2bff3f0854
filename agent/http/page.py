"""The status page: four static files without external resources, which request their data with a token."""

from __future__ import annotations

from importlib.resources import files

from agent.http.events import ReadBody
from agent.http.head import Head
from agent.http.response import Response
from agent.http.site import Handler, Resources

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
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


def page_resources() -> Resources:
    """Return the page's resources; they hold no data of the gateway, and need no token."""
    return {path: {"GET": _serve(name, media_type)} for path, (name, media_type) in _FILES.items()}


def _serve(name: str, media_type: str) -> Handler:
    async def serve(_: Head, __: ReadBody) -> Response:
        body = files("agent.http.page_files").joinpath(name).read_bytes()  # 20 kB, rarely requested
        return Response(200, body, media_type, _FIELDS)

    return serve
