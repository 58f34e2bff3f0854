"""A link that parses a broker's answers."""

from collections.abc import Iterator

import pytest

from tests.agent.forward.broker import LinkedTopic
from tests.agent.forward.modes.answer_link import AnswerLink


@pytest.fixture
def link(linked: LinkedTopic) -> Iterator[AnswerLink]:
    with AnswerLink(*linked.link_ends) as link:
        yield link
