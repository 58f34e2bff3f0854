"""Every option has an effect, which the test named here shows.

An option without a test is an error here; so is a test that does not exist, or that does not mention its option.
"""

from __future__ import annotations

import ast
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from agent.config.load import SECTIONS, key_of
from tests.docs.pages import ROOT

EFFECTS = "tests/agent/config/test_option_effects.py"
ENVIRONMENT = f"{EFFECTS}::test_what_the_environment_says_takes_effect"
SECURITY = "tests/agent/mqtt/test_security.py"
RECEIPTS = "tests/agent/forward/receipts/test_poller.py"
TLS = "tests/agent/http/test_tls.py::test_an_event_is_taken_over_tls"
SHOWN_BY = {
    "gateway.id": ENVIRONMENT,
    "gateway.state_dir": ENVIRONMENT,
    "gateway.clock": ENVIRONMENT,
    "coap.enabled": ENVIRONMENT,
    "coap.bind": "tests/agent/test_process.py::test_a_port_in_use_is_named",
    "coap.max_body_bytes": "tests/agent/coap/test_answers.py::test_a_body_over_the_limit_is_refused_with_size1",
    "coap.oscore.credentials_dir": "tests/agent/coap/oscore/test_process.py::"
    "test_after_a_kill_the_client_goes_on_and_a_captured_datagram_is_refused",
    "coap.oscore.required": "tests/agent/coap/oscore/test_contexts.py::"
    "test_where_oscore_is_required_a_plain_request_is_refused",
    "coap.oscore.freshness": "tests/agent/coap/oscore/test_copies.py::"
    "test_a_client_that_keeps_what_answers_bring_is_challenged_once_in_each_life_of_the_agent",
    "http.enabled": "tests/agent/http/test_process.py::test_http_that_is_switched_off_is_not_served",
    "http.bind": ENVIRONMENT,
    "http.token_file": "tests/agent/http/test_access.py::test_a_device_posts_under_its_own_identity_and_no_other",
    "http.tls_certificate": TLS,
    "http.tls_key": TLS,
    "http.max_body_bytes": "tests/agent/http/test_events.py::"
    "test_a_body_over_the_limit_is_refused_whether_its_length_is_said_or_not",
    "devices.allow": "tests/agent/test_admission.py::test_the_lists_let_a_device_in_or_not",
    "devices.deny": "tests/agent/test_admission.py::test_the_lists_let_a_device_in_or_not",
    "mqtt.enabled": "tests/agent/mqtt/test_process.py::test_sigkill_in_the_middle_loses_no_message_and_doubles_none",
    "mqtt.host": "tests/agent/cli/doctor/test_mqtt.py::test_a_broker_that_refuses_or_is_away_is_wrong",
    "mqtt.port": "tests/agent/cli/doctor/test_mqtt.py::test_a_broker_that_refuses_or_is_away_is_wrong",
    "mqtt.version": "tests/agent/mqtt/test_subscriber.py::test_retained_messages_are_state_and_no_events",
    "mqtt.username": f"{SECURITY}::test_the_password_comes_from_its_file",
    "mqtt.password_file": f"{SECURITY}::test_the_password_comes_from_its_file",
    "mqtt.tls": f"{SECURITY}::test_tls_checks_the_broker_and_shows_it_our_certificate",
    "mqtt.tls_ca_file": f"{SECURITY}::test_tls_checks_the_broker_and_shows_it_our_certificate",
    "mqtt.tls_certificate_file": f"{SECURITY}::test_tls_checks_the_broker_and_shows_it_our_certificate",
    "mqtt.tls_key_file": f"{SECURITY}::test_tls_checks_the_broker_and_shows_it_our_certificate",
    "mqtt.session_expiry": f"{EFFECTS}::test_the_broker_keeps_messages_for_as_long_as_it_is_told_to",
    "mqtt.max_body_bytes": "tests/agent/mqtt/test_subscriber.py::"
    "test_what_can_be_no_event_is_recorded_and_acknowledged",
    "mqtt.base_topic": "tests/agent/cli/doctor/test_mqtt.py::test_zigbee2mqtt_is_looked_for_where_it_publishes",
    "mqtt.subscriptions": "tests/agent/mqtt/test_subscriber.py::test_what_can_be_no_event_is_recorded_and_acknowledged",
    "identity.retention": "tests/agent/store/test_event_store.py::"
    "test_fingerprints_are_forgotten_after_the_retention_and_not_before",
    "identity.memory": "tests/agent/store/fingerprints/test_index.py::"
    "test_what_is_sealed_is_found_with_its_position_and_memory_stays_bounded",
    "identity.resend_window": f"{EFFECTS}::test_equal_data_is_suspicious_within_the_window",
    "identity.resend_horizon": f"{EFFECTS}::test_the_horizon_bounds_when_a_copy_can_have_existed",
    "identity.rules": "tests/agent/identity/test_cases.py::test_with_a_rule_without_time_it_is_a_copy",
    "store.max_bytes": "tests/agent/store/faults/test_event_store_faults.py::"
    "test_a_full_store_refuses_new_events_acks_copies_and_recovers_by_itself",
    "store.when_full": "tests/agent/store/write/test_capacity.py::"
    "test_the_oldest_are_dropped_only_where_configured_and_declared",
    "store.commit_delay_ms_max": f"{EFFECTS}::test_a_commit_waits_for_more_events_as_long_as_it_may",
    "store.commit_events_max": f"{EFFECTS}::test_a_commit_has_no_more_events_than_it_may",
    "store.keep_processed": "tests/agent/store/read/test_states.py::"
    "test_only_processed_events_are_purged_and_their_positions_never_come_again",
    "kafka.bootstrap_servers": "tests/agent/cli/doctor/test_kafka.py::"
    "test_a_broker_that_does_not_answer_is_named_with_the_reason",
    "kafka.topic": "tests/agent/cli/doctor/test_kafka.py::"
    "test_a_topic_that_is_missing_comes_with_the_command_that_creates_it",
    "kafka.delivery": "tests/agent/forward/delivery/test_exactly_once.py::"
    "test_a_backlog_and_what_comes_meanwhile_is_there_once",
    "kafka.bytes_per_second_max": "tests/agent/forward/test_uplink_cap.py::"
    "test_the_bytes_on_the_wire_are_those_of_the_cap",
    "kafka.hours": "tests/agent/forward/test_hours.py::test_nothing_is_sent_outside_the_hours",
    "kafka.oversized_after": "tests/agent/forward/delivery/test_oversized.py::"
    "test_what_the_broker_refuses_for_long_enough_is_given_up_and_the_rest_goes_on",
    "kafka.properties": "tests/agent/forward/kafka/test_client.py::"
    "test_the_users_properties_win_over_ours_and_never_over_the_modes",
    "kafka.properties_file": "tests/agent/forward/kafka/test_client.py::"
    "test_secret_properties_come_from_a_file_and_never_stand_in_an_error",
    "forward.lanes": "tests/agent/store/test_lanes.py::"
    "test_an_event_goes_to_the_first_lane_that_matches_its_device_and_its_type",
    "receipts.enabled": f"{RECEIPTS}::test_without_receipts_forwarded_is_done",
    "receipts.group": "tests/agent/cli/doctor/test_kafka.py::test_receipts_are_judged_by_whose_they_are",
    "receipts.poll_seconds": f"{EFFECTS}::test_receipts_are_asked_for_as_often_as_configured",
    "receipts.any_commit": "tests/agent/forward/receipts/test_foreign_commits.py::"
    "test_a_foreign_commit_counts_where_any_does",
}
OPTIONS = [f"{section}.{key_of(option)}" for section, kind in SECTIONS.items() for option in fields(kind)]


@cache
def source(file: Path) -> dict[str, str]:
    text = file.read_text()
    nodes = ast.walk(ast.parse(text))
    found = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name: ast.get_source_segment(text, node) or "" for node in found}


def test_every_option_names_its_test() -> None:
    assert set(SHOWN_BY) == set(OPTIONS), "tell in SHOWN_BY which test shows the effect of a new option"


@pytest.mark.parametrize("option", sorted(set(OPTIONS) & set(SHOWN_BY)))
def test_the_test_exists_and_is_about_the_option(option: str) -> None:
    place, name = SHOWN_BY[option].split("::")
    assert name in source(ROOT / place)
    # In the test's file, or in a helper beside it: fixtures, parameters, the configuration that they write.
    beside = (file for file in (ROOT / place).parent.glob("*.py") if not file.name.startswith("test_"))
    text = "".join(file.read_text() for file in (ROOT / place, *beside)).lower()
    assert option.rpartition(".")[2] in text.replace("kafkasettings(", "bootstrap_servers topic ")
