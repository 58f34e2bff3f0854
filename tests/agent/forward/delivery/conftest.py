"""A broker behind a link that parses its answers."""

from collections.abc import Iterator

import pytest

from simulators.services import ports
from simulators.services.kafka.broker import Broker, Listener
from tests.agent.forward.delivery.answer_link import AnswerLink


@pytest.fixture(scope="package")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int, int]]:
    """Yield a broker that advertises the link's address, the port where it listens, and the link's."""
    listens, says = ports.free(2)
    with Broker(tmp_path_factory.mktemp("linked"), Listener("PLAINTEXT", listens, says)) as broker:
        yield broker, listens, says


@pytest.fixture
def link(linked: tuple[Broker, int, int]) -> Iterator[AnswerLink]:
    _, listens, says = linked
    with AnswerLink(says, listens) as link:
        yield link
