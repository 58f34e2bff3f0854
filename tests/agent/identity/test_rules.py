"""[[identity.rules]]: how they are read, and that `oncegate fingerprint` agrees with the gateway."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config.identity_rules import IdentityRule, read_rules
from agent.config.load import Source, parse
from agent.config.mistakes import ConfigurationError
from agent.identity.identify import rule_for
from contract.fingerprint import IDENTITY_FIELDS
from tests.docs.pages import ROOT, blocks


def test_a_rule_is_read() -> None:
    rules = read_rules([{"device": "a*", "fields": ["data", "device"], "ambiguous": "drop", "window": "90s"}])
    assert rules == (IdentityRule("a*", ("device", "data"), 90.0),)
    assert read_rules([{"device": "a*", "ambiguous": "keep"}]) == (IdentityRule("a*", IDENTITY_FIELDS, None),)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("device", "expected tables"),
        ({"device": "a"}, "expected tables"),
        ({"fields": ["device"]}, "expected tables"),
        ({"device": "a", "felds": ["device"]}, "'felds'"),
        ({"device": "a", "fields": ["device", "units"]}, "expected as fields some of device, type"),
        ({"device": "a", "fields": ["device", "device"]}, "each once"),
        ({"device": "a", "fields": ["id"]}, "expected device among"),
        ({"device": "a", "ambiguous": "guess"}, "expected as ambiguous"),
        ({"device": "a", "ambiguous": "drop"}, "expected window together"),
        ({"device": "a", "fields": ["device"], "window": "5s"}, "expected window together"),
        ({"device": "a", "ambiguous": "drop", "window": 0}, "above zero"),
        ({"device": "a", "ambiguous": "drop", "window": "soon"}, "a duration"),
        ({"device": "a", "ambiguous": "drop", "window": "8d"}, "no longer than retention"),
    ],
)
def test_a_wrong_rule_is_named(table: object, reason: str) -> None:
    document = {
        "gateway": {"id": "gw1"},
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "identity": {"rules": [table]},
    }
    with pytest.raises(ConfigurationError, match=r"\[identity\] ") as error:
        parse(document, Source("test.toml"), {})
    assert reason in str(error.value)


def test_the_first_rule_that_fits_counts() -> None:
    first, second = IdentityRule("urn:a:*"), IdentityRule("urn:*", ("device", "id"))
    assert rule_for((first, second), "urn:a:1") is first
    assert rule_for((first, second), "urn:b:1") is second
    assert rule_for((first, second), "coap://[::1]") is None


def test_the_rules_in_the_documents_are_taken() -> None:
    (example,) = blocks(ROOT / "docs" / "identity.md", "toml")
    settings = parse(tomllib.loads(example), Source("identity.md"), {})
    assert [rule.window_seconds for rule in settings.identity.rules] == [None, 60.0]


@given(fields=st.sets(st.sampled_from(IDENTITY_FIELDS[1:])))
def test_the_fields_stand_in_one_order(fields: set[str]) -> None:
    (rule,) = read_rules([{"device": "*", "fields": [*fields, "device"]}])
    assert list(rule.fields) == [name for name in IDENTITY_FIELDS if name == "device" or name in fields]
