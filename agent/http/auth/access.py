"""Checks who may post and who may read, and opens the TLS context of HTTPS."""

import ssl
from urllib.parse import urlsplit

from agent.config import files
from agent.config.settings import HttpSettings
from agent.http.address import HttpSettingsError, is_loopback, reaches_loopback_only
from agent.http.auth.tokens import Holder, Role, Tokens, read_tokens
from agent.http.head import Head
from agent.http.response import CHALLENGE, refusal

_SCHEME = "bearer"
_LOCALHOST = "localhost"
_OTHER_SITES = ("cross-site", "same-site")
"""What a browser says where a page of another site asks: it could not read the answer, but cause work."""


class Access:
    """The rights of a request.

    Without tokens every process on this machine may post and read: then only the loopback is listened on, and the
    request must be local, which excludes web pages of other sites, and proxies that can be recognised. With tokens,
    posting needs that of a device or a relay; reading needs that of a reader, except for such local requests.
    """

    def __init__(self, tokens: Tokens | None, *, loopback: bool) -> None:
        self.tokens = tokens
        self._loopback = loopback

    def sender(self, head: Head) -> Holder | None:
        """Return the device or relay that posts, None where no token is needed; raise Refusal."""
        if self.tokens is None:
            _check_local(head)
            return None
        holder = _holder(self.tokens, head)
        if holder.role is Role.READER:
            raise refusal(403, "forbidden", "this token may read and not post; use that of a device or a relay")
        return holder

    def check_reader(self, head: Head) -> None:
        """Raise Refusal where the request may not read."""
        if (head.field(b"sec-fetch-site") or "").strip().lower() in _OTHER_SITES:
            raise refusal(403, "forbidden", "a page of another site in a browser may not read here")
        if self.tokens is None:
            _check_local(head)
        elif self._loopback and _is_local(head):
            return
        elif _holder(self.tokens, head).role is not Role.READER:
            raise refusal(403, "forbidden", "this token may post and not read; use that of a reader")


def open_access(settings: HttpSettings) -> Access:
    """Return the access rules of the settings; raise HttpSettingsError."""
    loopback = reaches_loopback_only(settings.bind)
    if settings.token_file is None and not loopback:
        raise HttpSettingsError(
            f"http.token_file: needed, since http.bind = {settings.bind} can be reached from beyond this machine"
        )
    tokens = None if settings.token_file is None else read_tokens(settings.token_file)
    return Access(tokens, loopback=loopback)


def _is_local(head: Head) -> bool:
    """Whether a loopback request names this machine as its host, without a proxy's header."""
    if any(name == b"forwarded" or name.startswith(b"x-forwarded-") for name, _ in head.fields):
        return False
    try:
        host = urlsplit(f"//{head.field(b'host') or _LOCALHOST}").hostname or ""
        return host == _LOCALHOST or is_loopback(host)
    except ValueError:
        return False


def _check_local(head: Head) -> None:
    if not _is_local(head):
        message = "without http.token_file only this machine is served, as localhost, 127.0.0.1 or [::1]"
        raise refusal(403, "forbidden", message)


def _holder(tokens: Tokens, head: Head) -> Holder:
    scheme, _, token = (head.field(b"authorization") or "").partition(" ")
    if scheme.lower() != _SCHEME:
        raise refusal(401, "unauthenticated", "send Authorization: Bearer and your token", CHALLENGE)
    holder = tokens.find(token.strip().encode("latin-1"))
    if holder is None:
        message = "this token is not in the token file that the agent has read"
        raise refusal(401, "unauthenticated", message, CHALLENGE)
    return holder


def open_tls(settings: HttpSettings) -> ssl.SSLContext | None:
    """Return the context with certificate and key, None where none is configured; raise HttpSettingsError."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise HttpSettingsError("http.tls_certificate and http.tls_key: expected both or neither")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        files.check(certificate, key)
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise HttpSettingsError(f"http.tls_certificate {certificate}, http.tls_key {key}: {error}") from error
    return context


def _no_password() -> str:
    """Raise ValueError where the key needs a password, instead of prompting on the terminal for it."""
    raise ValueError("the key needs a password; use a key without one, readable by the agent alone")
