"""The forms in which a bridge writes topics, by the names that tests give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cdc.lab.stack import AnyRegistry
from tests.support.deployment import Deploy, Deployment

FORMS: Final[Mapping[str, Mapping[str, str]]] = {
    "json": {},
    "avro": {"format": "avro"},
    "protobuf": {"format": "protobuf"},
    "json-schema": {"format": "json-schema"},
    "avro keys": {"key_format": "avro"},
    "debezium": {"envelope": "debezium"},
    "debezium in avro": {"envelope": "debezium", "format": "avro"},
}
"""What ``topics`` has for each."""
_OF_REGISTRY: Final = {"format", "formats", "key_format"}


def in_form(form: str, registry: AnyRegistry | None = None, **sections: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The sections of a configuration for topics in a form; what ``sections`` has wins. JSON needs no registry."""
    topics = {**FORMS[form], **sections.pop("topics", {})}
    schemas = {"registry": {"url": registry.url}} if registry is not None and _OF_REGISTRY & topics.keys() else {}
    return {"topics": topics, **schemas, **{name: dict(section) for name, section in sections.items()}}


def deploy_in(
    form: str, deploy: Deploy, registry: AnyRegistry | None = None, **sections: Mapping[str, Any]
) -> Deployment:
    """A deployment whose topics are in a form; ``sections`` as for ``in_form``."""
    return deploy(**in_form(form, registry, **sections))
