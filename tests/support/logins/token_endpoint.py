"""An OAuth 2.0 server for tests: it issues tokens for client credentials (RFC 6749 section 4.4) over TLS."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

AUDIENCE = "kafka"
ISSUER = "https://tokens.example"
SECONDS = 300
_KEY = "key-1"


class TokenEndpoint:
    """Issues signed tokens (JWT), and writes the key by which a broker verifies them (JWKS) into a file."""

    def __init__(self, folder: Path, certificate: Path, clients: Mapping[str, str], seconds: int = SECONDS) -> None:
        """`certificate` holds the server's key and certificate; `clients` maps the clients to their secrets."""
        self.issued: list[str] = []
        """The clients that have received tokens."""
        self.seconds = seconds
        self._key = rsa.generate_private_key(65_537, 2_048)
        self._clients = clients
        self.key_set = folder / "jwks.json"
        self.key_set.write_text(json.dumps({"keys": [self._public()]}))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    @property
    def url(self) -> str:
        """The URL of the endpoint."""
        return f"https://127.0.0.1:{self._server.server_port}/token"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def token(self, client: str) -> tuple[str, float]:
        """Return a token for a client, and its time of expiry in seconds since 1970 UTC."""
        now = int(time.time())
        claims = {"sub": client, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + self.seconds, "scope": "x"}
        head = {"alg": "RS256", "typ": "JWT", "kid": _KEY}
        text = ".".join(_encoded(json.dumps(part).encode()) for part in (head, claims))
        signature = self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{_encoded(signature)}", float(now + self.seconds)

    def _answer(self, authorization: str, form: Mapping[str, list[str]]) -> tuple[int, dict[str, Any]]:
        kind, _, credentials = authorization.partition(" ")
        client, _, secret = base64.b64decode(credentials).decode().partition(":")
        if kind != "Basic" or self._clients.get(client) != secret:
            return 401, {"error": "invalid_client"}
        if form.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        self.issued.append(client)
        return 200, {"access_token": self.token(client)[0], "token_type": "Bearer", "expires_in": self.seconds}

    def _public(self) -> dict[str, str]:
        numbers = self._key.public_key().public_numbers()
        modulus, exponent = numbers.n.to_bytes(256), numbers.e.to_bytes(3)
        return {
            "kty": "RSA", "kid": _KEY, "use": "sig", "alg": "RS256", "n": _encoded(modulus), "e": _encoded(exponent),
        }  # fmt: skip

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                status, document = endpoint._answer(self.headers.get("Authorization", ""), parse_qs(body))
                content = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the library's name
                pass

        return Handler


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
