"""Routes requests to handlers by path and method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from agent.http.events import ReadBody
from agent.http.head import Head
from agent.http.response import Response, refusal

Handler = Callable[[Head, ReadBody], Awaitable[Response]]
"""Serves a request; raises Refusal."""

PAGE_FILES = "/page/"
"""The prefix of the status page's files."""

Resources = Mapping[str, Mapping[str, Handler]]
"""Handlers by path and method."""


class Site:
    """All resources; a handler of GET serves HEAD, too."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    async def respond(self, head: Head, read_body: ReadBody) -> Response:
        """Return the handler's response; raise Refusal where there is no handler, or it refuses."""
        resource = self._resources.get(head.path)
        if resource is None:
            raise refusal(404, "not found", f"there are {', '.join(dict.fromkeys(map(_listed, self._resources)))}")
        handler = resource.get("GET" if head.method == "HEAD" else head.method)
        if handler is None:
            allowed = ", ".join((*resource, *(["HEAD"] if "GET" in resource else ())))
            raise refusal(405, "method not allowed", f"here it is {allowed}", ("Allow", allowed))
        return await handler(head, read_body)


def _listed(path: str) -> str:
    """Return a path as the message lists it: the files of the page as one."""
    return PAGE_FILES if path.startswith(PAGE_FILES) else path
