"""A real broker with a SASL_SSL listener, SCRAM users and ACLs; on its plain listener a test may do anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from cdc.lab.stack import KafkaBroker
from tests.support.certificates import Authority

LISTENER: Final = "SASL_SSL"
_ITERATIONS: Final = 4096
_SETTINGS: Final[Mapping[str, str]] = {
    "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{LISTENER}:SASL_SSL",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "ssl.keystore.type": "PEM",
}


@dataclass(frozen=True)
class SecuredKafka:
    """The broker, and what clients need.

    Attributes:
        authority: signed the broker's certificate.
        stranger: another authority.
        admin: may do anything.
    """

    broker: KafkaBroker
    authority: Path
    stranger: Path
    admin: AdminClient

    def user(self, name: str, password: str) -> None:
        """Make a user with this password, or change it."""
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        wanted = UserScramCredentialUpsertion(name, credential, password.encode())
        for future in self.admin.alter_user_scram_credentials([wanted]).values():
            future.result(30)

    def section(self, user: str, password: str) -> dict[str, Any]:
        """The configuration's section ``kafka``."""
        return {
            "bootstrap": self.broker.listener(LISTENER),
            "options": {
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(self.authority),
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": user,
            },
            "password": password,
        }

    def allow(self, acls: Iterable[AclBinding]) -> None:
        """Add ACLs."""
        for future in self.admin.create_acls(list(acls)).values():
            future.result(30)

    def take_away(
        self, user: str, operation: AclOperation = AclOperation.ANY, kind: ResourceType | None = None
    ) -> None:
        """Remove a user's ACLs: all, or those for an operation or on a kind of resource."""
        rule = AclBindingFilter(
            kind or ResourceType.ANY,
            None,  # type: ignore[arg-type]  # any: its stub forbids what its documentation says
            ResourcePatternType.ANY,
            f"User:{user}",
            None,  # type: ignore[arg-type]  # likewise
            operation,
            AclPermissionType.ANY,
        )
        self.admin.delete_acls([rule])[rule].result(30)


@contextmanager
def secured_kafka(directory: Path) -> Iterator[SecuredKafka]:
    """Started; closed at the end. The certificates lie in ``directory``."""
    authority = Authority(directory)
    keystore = {"ssl.keystore.location": str(authority.sign("broker").both)}
    settings = {**_SETTINGS, **keystore}
    with KafkaBroker.open(settings=settings, listeners=[LISTENER], heap_mb=512, quick_start=True) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        yield SecuredKafka(broker, authority.root, Authority.stranger(directory).root, admin)
