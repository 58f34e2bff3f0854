"""A client of the agent's HTTP interface."""

import http.client
import json
import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agent.cli.failures import CommandError
from agent.config.settings import HttpSettings
from contract.files import PrivateFileError, read_private

SECONDS_MAX = 15.0
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
"""Where to reach an agent that listens on all addresses."""


class ApiError(CommandError):
    """The request had no result; the message contains the reason, and never the token."""


class AgentUnreachableError(ApiError):
    """The agent did not answer: try again."""


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response of the agent."""

    code: int
    body: bytes
    retry_after: str = ""

    @property
    def document(self) -> Any:
        """The body as JSON; raise ApiError where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise ApiError("the answer is not that of an Oncegate agent") from None


class Api:
    """The interface at a URL such as `http://127.0.0.1:8580`."""

    def __init__(self, url: str, token: str = "", tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        try:
            self._address = (parts.hostname or "", parts.port)
        except ValueError:
            self._address = ("", None)
        if parts.scheme not in ("http", "https") or not self._address[0]:
            raise ApiError(f"{url}: expected a URL such as http://127.0.0.1:8580")
        self.url = url.rstrip("/")
        self._path = parts.path.rstrip("/")
        self._fields = {"Authorization": f"Bearer {token}"} if token else {}
        self._tls = tls or (ssl.create_default_context() if parts.scheme == "https" else None)

    def get(self, path: str) -> ApiResponse:
        """Return what a path has; raise ApiError where it refuses."""
        response = self._request("GET", path, None, {})
        if response.code == 200:
            return response
        raise ApiError(f"{self.url}{path}: {response.code}: {reason(response)}")

    def post(self, path: str, body: bytes, media_type: str) -> ApiResponse:
        """Post a body, and return the response whatever its code."""
        return self._request("POST", path, body, {"Content-Type": media_type})

    def _request(self, method: str, path: str, body: bytes | None, fields: dict[str, str]) -> ApiResponse:
        secure = partial(http.client.HTTPSConnection, context=self._tls)
        connection = (secure if self._tls else http.client.HTTPConnection)(*self._address, timeout=SECONDS_MAX)
        try:
            connection.request(method, self._path + path, body, {**fields, **self._fields})
            received = connection.getresponse()
            return ApiResponse(received.status, received.read(), received.headers.get("Retry-After", ""))
        except ssl.SSLError as error:
            raise ApiError(f"{self.url}: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            text = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
            raise AgentUnreachableError(f"{self.url}: {text}") from error
        finally:
            connection.close()


def reason(response: ApiResponse) -> str:
    """Return the reason of a refusal."""
    try:
        return str(response.document["message"])
    except (ApiError, KeyError, TypeError):
        return response.body.decode("utf-8", "replace").strip() or "no reason given"


def own_api(settings: HttpSettings) -> Api:
    """Return the interface of the agent with these settings; raise ApiError where it has none."""
    host, _, port = settings.bind.rpartition(":")
    if not settings.enabled:
        raise ApiError("http.enabled is false: this command needs the agent's HTTP interface")
    if port == "0":
        raise ApiError(f"http.bind = {settings.bind}: the agent uses any free port")
    scheme, tls = "http", None
    if settings.tls_certificate is not None:
        scheme, tls = "https", _pinned(settings.tls_certificate)
    return Api(f"{scheme}://{_EVERYWHERE.get(host, host)}:{port}", tls=tls)


def read_token(file: Path | None) -> str:
    """Return the token in a file's first line, empty where none is named; raise ApiError."""
    if file is None:
        return ""
    try:
        return (read_private(file).splitlines() or [""])[0].strip()
    except PrivateFileError as error:
        raise ApiError(f"{file}: {error}") from error


def _pinned(certificate: Path) -> ssl.SSLContext:
    """Return a context that trusts the agent's own certificate, whatever host name the request uses."""
    try:
        context = ssl.create_default_context(cafile=str(certificate))
    except (OSError, ssl.SSLError) as error:
        raise ApiError(f"http.tls_certificate {certificate}: {error}") from error
    context.check_hostname = False
    context.verify_flags = ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN | ssl.VerifyFlags.VERIFY_X509_TRUSTED_FIRST
    return context
