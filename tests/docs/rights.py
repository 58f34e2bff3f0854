"""The rights that docs/kafka.md grants and docs/runbook.md denies, with a test's names in place of the pages'."""

import argparse
from collections.abc import Iterator, Mapping

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ lacks some of them
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from contract import topics
from tests.docs.pages import ROOT
from tests.docs.snippets import blocks_of, programs

GATEWAY = "gw-1"
"""The gateway of the page, whose login has the same name."""
_OPERATIONS = {
    "All": AclOperation.ALL,
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}
_KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "transactional_id": ResourceType.TRANSACTIONAL_ID}
_PATTERNS = {"literal": ResourcePatternType.LITERAL, "prefixed": ResourcePatternType.PREFIXED}


def rights(topic: str, group: str, gateway: str = GATEWAY) -> list[AclBinding]:
    """Return the rights of all principals of the page, on this topic and this group of the job, for this gateway."""
    return _bindings("kafka", "--allow-principal", gateway, {topics.EVENTS: topic, "oncegate-cloud": group})


def denial(gateway: str) -> list[AclBinding]:
    """Return what docs/runbook.md denies to the login of a stolen gateway."""
    return _bindings("runbook", "--deny-principal", gateway, {})


def _bindings(page: str, option: str, gateway: str, names: Mapping[str, str]) -> list[AclBinding]:
    blocks = [block for block in blocks_of(ROOT / "docs" / f"{page}.md") if option in block]
    lines = [line for block in blocks for line in block.replace(GATEWAY, gateway).splitlines() if option in line]
    return [binding for line in lines for words in programs(line) for binding in _granted(words, names)]


def _granted(words: tuple[str, ...], names: Mapping[str, str]) -> Iterator[AclBinding]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-server")
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--allow-principal")
    parser.add_argument("--deny-principal")
    parser.add_argument("--operation", action="append", choices=_OPERATIONS, required=True)
    parser.add_argument("--resource-pattern-type", choices=_PATTERNS, default="literal")
    for kind in _KINDS:
        parser.add_argument(f"--{kind.replace('_', '-')}")
    given = parser.parse_args(words[1:])
    access = AclPermissionType.ALLOW if given.allow_principal else AclPermissionType.DENY
    for option, resource_type in _KINDS.items():
        if name := vars(given)[option]:
            resource = (resource_type, names.get(name, name), _PATTERNS[given.resource_pattern_type])
            for one in given.operation:
                user = given.allow_principal or given.deny_principal
                yield AclBinding(*resource, user, "*", _OPERATIONS[one], access)
