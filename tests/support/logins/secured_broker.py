"""A broker as people buy it: logins by SASL (SCRAM, PLAIN, OAUTHBEARER) and certificates, and rights for each user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ lacks some of them
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from simulators.services import ports
from simulators.services.kafka.broker import Broker
from simulators.services.kafka.settings import Listener
from tests.support.logins.certificates import Authority
from tests.support.logins.token_endpoint import AUDIENCE, ISSUER, TokenEndpoint

GATEWAY, CLOUD = "gateway", "cloud"
PASSWORDS = {GATEWAY: "correct horse=1", CLOUD: "battery; staple=2"}
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
    """Holds `ca.pem`, and for each user a file with key and certificate, as in `gateway.pem`."""
    sasl: str
    """The address for logins by SASL."""
    tls: str
    """The address for logins by certificate."""

    def grant(self, topic: str, group: str) -> None:
        """Grant the rights of docs/kafka.md."""
        describe, read, write = AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE
        configs, delete = AclOperation.DESCRIBE_CONFIGS, AclOperation.DELETE
        rights: Mapping[tuple[str, ResourceType, str], tuple[AclOperation, ...]] = {
            (GATEWAY, ResourceType.TOPIC, topic): (describe, configs, write, read),
            (GATEWAY, ResourceType.GROUP, group): (describe, read),
            (CLOUD, ResourceType.TOPIC, topic): (describe, configs, read),
            (CLOUD, ResourceType.GROUP, group): (read, describe, delete),
        }
        self._create(rights)

    def grant_transactions(self, gateway: str) -> None:
        """Grant the rights that exactly once needs, to the user of the same name."""
        write, describe, read = AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.READ
        self._create(
            {
                (GATEWAY, ResourceType.TRANSACTIONAL_ID, gateway): (write, describe),
                (GATEWAY, ResourceType.GROUP, f"oncegate-outbox-{gateway}"): (read,),
            }
        )

    def _create(self, rights: Mapping[tuple[str, ResourceType, str], tuple[AclOperation, ...]]) -> None:
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        bindings = [
            AclBinding(kind, name, literal, f"User:{user}", "*", operation, allow)
            for (user, kind, name), operations in rights.items()
            for operation in operations
        ]
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        for future in admin.create_acls(bindings).values():
            future.result(_ANSWER_SECONDS_MAX)


@contextmanager
def secured_broker(folder: Path) -> Iterator[SecuredBroker]:
    """Run the broker, and the endpoint that issues the tokens; users of its plain listener have all rights."""
    authority = Authority(folder)
    keystore, _ = authority.issue("broker.pem", _HOURS)
    for user in PASSWORDS:
        authority.issue(f"{user}.pem", _HOURS, user)
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
