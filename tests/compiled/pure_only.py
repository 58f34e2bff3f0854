"""The tests that only the pure form can pass: they replace what is fixed once it is compiled, or break its types."""

import pytest

from agent import release

_SECTION = "replaces the length of a section, a constant of a compiled module"
_CAPACITY = "replaces methods of Capacity, which the compiled modules call directly"

PURE_ONLY = {
    "tests/agent/store/write/test_capacity.py::test_what_the_file_system_says_is_never_too_little": _CAPACITY,
    "tests/agent/store/fingerprints/test_index.py::test_a_step_of_the_sealing_reads_few_entries": (
        "replaces a method of FingerprintIndex"
    ),
    **{
        "tests/agent/test_damage.py::test_the_damaged_store_of_one_lane_is_salvaged_and_the_other_lane_keeps_all"
        f"[{damaged}]": _SECTION
        for damaged in ("alarms", "default")
    },
    "tests/agent/systemd/test_supervision.py::test_a_salvage_of_any_length_is_no_reason_for_the_watchdog": _SECTION,
    "tests/contract/test_fingerprint.py::test_vector_has_its_bytes_and_its_fingerprint"
    "[an id that came as an integral float is the integer]": (
        "makes an event whose id is a float, which no decoder does; compiled functions check their arguments' types"
    ),
}
"""Why a test needs the pure form, by its id."""


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect these tests where the compiled form runs."""
    if release.form() == "pure":
        return
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in PURE_ONLY])
    items[:] = [item for item in items if item.nodeid not in PURE_ONLY]
