"""The rights that docs/kafka.md grants and docs/runbook.md denies, with a test's names in place of the pages'."""

import argparse
import re
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
_KINDS = ("topic", "group", "transactional_id")


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
    parser.add_argument("--operation", action="append", type=_operation, required=True)
    parser.add_argument("--resource-pattern-type", default="literal")
    for kind in _KINDS:
        parser.add_argument(f"--{kind.replace('_', '-')}")
    given = parser.parse_args(words[1:])
    access = AclPermissionType.ALLOW if given.allow_principal else AclPermissionType.DENY
    pattern = ResourcePatternType[given.resource_pattern_type.upper()]
    for kind in _KINDS:
        if name := vars(given)[kind]:
            resource = (ResourceType[kind.upper()], names.get(name, name), pattern)
            for one in given.operation:
                user = given.allow_principal or given.deny_principal
                yield AclBinding(*resource, user, "*", one, access)


def _operation(name: str) -> AclOperation:
    """Return the operation that Kafka's tools call so, such as DescribeConfigs."""
    return AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()]
