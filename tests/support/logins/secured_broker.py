"""A broker as people buy it: logins by SASL (SCRAM, PLAIN, OAUTHBEARER) and certificates, and rights for each user."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ lacks some of them
    AclBinding,
    AclBindingFilter,
    AdminClient,
    ScramMechanism,
    UserScramCredentialDeletion,
)
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from simulators.services import ports
from simulators.services.kafka.broker import Broker, Listener
from tests.docs.rights import GATEWAY, rights
from tests.support.logins.certificates import Authority
from tests.support.waiting import wait_until

CLOUD, AUDIT, CONSUMER = "cloud", "audit", "consumer"
STRANGER, STOLEN = "gw-2", "gw-3"
"""Other gateways, which have no rights until a test grants them."""
PASSWORDS = {
    GATEWAY: "correct horse=1",
    CLOUD: "battery; staple=2",
    AUDIT: "a",
    CONSUMER: "c",
    STRANGER: "2",
    STOLEN: "3",
}
"""The passwords and client secrets of the users; with characters that a careless reader of files would cut at."""
_ANSWER_SECONDS_MAX = 60.0
_HOURS = 3_600


@dataclass(frozen=True, slots=True)
class SecuredBroker:
    """The broker, and what its clients need."""

    broker: Broker
    authority: Authority
    endpoint: TokenEndpoint
    folder: Path
    """Holds `ca.pem`, and files with key and certificate of the gateway and of the job: `gateway.pem`, `cloud.pem`."""
    sasl: str
    """The address for logins by SASL."""
    tls: str
    """The address for logins by certificate."""

    def grant(self, topic: str, group: str) -> None:
        self.create(rights(topic, group))

    def create(self, bindings: Iterable[AclBinding]) -> None:
        """Create access rights, and wait until the broker applies them."""
        wanted, admin = list(bindings), self._admin()  # an answer is lost with its client
        for future in admin.create_acls(wanted).values():
            future.result(_ANSWER_SECONDS_MAX)
        wait_until(lambda: all(_has(admin, one) for one in wanted), "the broker applies the rights")

    def revoke(self, *bindings: AclBinding) -> None:
        """Delete access rights, and wait until the broker applies that."""
        admin = self._admin()
        for future in admin.delete_acls([_only(one) for one in bindings]).values():
            future.result(_ANSWER_SECONDS_MAX)
        wait_until(lambda: not any(_has(admin, one) for one in bindings), "the broker applies the rights")

    def remove(self, user: str) -> None:
        deletion, admin = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512), self._admin()
        admin.alter_user_scram_credentials([deletion])[user].result(_ANSWER_SECONDS_MAX)

    def login(self, user: str) -> dict[str, str]:
        """Return the properties of librdkafka with which a user logs in by SASL."""
        return {
            "bootstrap.servers": self.sasl,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
            "ssl.ca.location": str(self.authority.file),
        }

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})


def _has(admin: AdminClient, binding: AclBinding) -> bool:
    return bool(admin.describe_acls(_only(binding)).result(_ANSWER_SECONDS_MAX))


def _only(one: AclBinding) -> AclBindingFilter:
    """Return the filter that a right alone matches."""
    resource = (one.restype, one.name, one.resource_pattern_type)
    return AclBindingFilter(*resource, one.principal, one.host, one.operation, one.permission_type)


@contextmanager
def secured_broker(folder: Path) -> Iterator[SecuredBroker]:
    """Run the broker, and the endpoint that issues the tokens; users of its plain listener have all rights."""
    authority = Authority(folder)
    keystore, _ = authority.issue("broker.pem", _HOURS)
    for file, user in (("gateway.pem", GATEWAY), ("cloud.pem", CLOUD)):
        authority.issue(file, _HOURS, user)
    sasl, tls = ports.free(2)
    with TokenEndpoint(folder, keystore, PASSWORDS) as endpoint:
        listeners = (
            Listener("SASL_SSL", sasl, sasl, _sasl_properties(endpoint)),
            Listener("SSL", tls, tls, _tls_properties(authority.file, keystore), name="THIRD"),
        )
        keys = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={endpoint.key_set.as_uri()}"
        with Broker(folder / "kafka", *listeners, scram=PASSWORDS, java_options=(keys,)) as broker:
            yield SecuredBroker(broker, authority, endpoint, folder, f"127.0.0.1:{sasl}", f"127.0.0.1:{tls}")


def _sasl_properties(endpoint: TokenEndpoint) -> dict[str, object]:
    modules = "org.apache.kafka.common.security"
    bearer = f"{modules}.oauthbearer"
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    return {
        "listener.name.second.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN,OAUTHBEARER",
        "listener.name.second.scram-sha-512.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
        "listener.name.second.plain.sasl.jaas.config": f"{modules}.plain.PlainLoginModule required {users};",
        "listener.name.second.oauthbearer.sasl.jaas.config": f"{bearer}.OAuthBearerLoginModule required;",
        "listener.name.second.oauthbearer.sasl.server.callback.handler.class": (
            f"{bearer}.OAuthBearerValidatorCallbackHandler"
        ),
        "listener.name.second.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": endpoint.key_set.as_uri(),
        "listener.name.second.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        "listener.name.second.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
    }


def _tls_properties(authority: Path, keystore: Path) -> dict[str, object]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keystore,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority,
        "listener.name.third.ssl.client.auth": "required",
        "listener.name.third.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


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
        return f"https://127.0.0.1:{self._server.server_port}/token"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
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
