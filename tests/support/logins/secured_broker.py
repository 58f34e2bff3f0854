"""A broker as people buy it: logins by SASL (SCRAM, PLAIN, OAUTHBEARER) and certificates, and rights for each user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ lacks some of them
    AclBinding,
    AclBindingFilter,
    AdminClient,
    ScramMechanism,
    UserScramCredentialDeletion,
)

from simulators.services import ports
from simulators.services.kafka.broker import Broker, Listener
from tests.docs.rights import GATEWAY, rights
from tests.support.logins.certificates import Authority
from tests.support.logins.token_endpoint import AUDIENCE, ISSUER, TokenEndpoint
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
        """Grant the rights of docs/kafka.md."""
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
        """Remove a user's login by SCRAM."""
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
