"""Blocks of several uploads that arrive in any order, repeatedly and late."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.coap.slow_path.blocks import Block, Blocks, IncompleteError, TooLargeError


@pytest.mark.guarantee(1)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.sampled_from((0, 0, 16, 32, 48)),
            st.sampled_from((16, 32)),
            st.booleans(),
            st.integers(0, 3),
            st.integers(0, 4),
        ),
        max_size=40,
    )
)
def test_whatever_comes_in_whatever_order_a_body_has_the_blocks_of_one_upload(
    arrivals: list[tuple[str, int, int, bool, int, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent.coap.slow_path.blocks.ASSEMBLED_BYTES_MAX", 64)
        upload, now = Blocks(80, 10.0), 0.0
        uploads: dict[str, list[Block]] = {}
        arrived: dict[bytes, float] = {}
        for sensor, start, size, more, run, pause in arrivals:
            now += pause
            key = f"{sensor} {start} {size} {more} {run}".encode()
            block = Block(start, size, more, bytes((run,)) * (size if more else size - 1), key)
            new = now - arrived.get(key, -10.0) >= 10.0
            try:
                complete = upload.take(sensor, block, now)
            except IncompleteError:
                if new:
                    arrived[key], uploads[sensor] = now, []
            except TooLargeError:
                pass
            else:
                if new:
                    arrived[key] = now
                    uploads[sensor] = [*(uploads[sensor] if start else ()), block]
                assert block in uploads[sensor]
                if complete is not None:
                    assert complete.body == b"".join(block.payload for block in uploads[sensor])
            kept = [len(assembly.body) for assembly in upload._assemblies.values()]
            assert upload._bytes == sum(kept)
            assert len(kept) < 2 or sum(kept) <= 64
