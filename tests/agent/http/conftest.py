"""A server with the usual settings."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent.http.serving import Served, serving


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as served:
        yield served
