"""[[forward.lanes]]: what is read, and what is refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from agent.config.lanes import LANES_MAX, Lane, read_lanes

ALARMS = {"name": "alarms", "priority": 10, "type": "alarm*"}


def test_lanes_are_read_in_their_order() -> None:
    doors = {"name": "doors", "priority": -1, "device": "urn:door:*", "type": "open", "time_to_live": "2h"}
    assert read_lanes([ALARMS, doors]) == (
        Lane("alarms", 10, type="alarm*"),
        Lane("doors", -1, device="urn:door:*", type="open", time_to_live_seconds=7_200.0),
    )


@pytest.mark.parametrize(
    ("lanes", "reason"),
    [
        ({}, "expected tables"),
        ([{"name": "a", "priority": 1}], "device or type"),
        ([{"name": "a", "type": "b"}], "priority"),
        ([ALARMS | {"topic": "x"}], "not 'topic'"),
        ([ALARMS | {"name": "../up"}], "lower-case"),
        ([ALARMS | {"name": "default"}], "not default"),
        ([ALARMS | {"priority": "high"}], "whole number"),
        ([ALARMS | {"priority": True}], "whole number"),
        ([ALARMS | {"device": ""}], "text"),
        ([ALARMS | {"time_to_live": "soon"}], "duration"),
        ([ALARMS | {"time_to_live": 0}], "above zero"),
        ([ALARMS, ALARMS], "of its own"),
        ([ALARMS | {"name": f"lane-{number}"} for number in range(LANES_MAX + 1)], f"{LANES_MAX} lanes at most"),
    ],
)
def test_what_is_no_lane_is_refused_with_the_reason(lanes: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_lanes(lanes)
