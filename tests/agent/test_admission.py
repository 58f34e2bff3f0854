"""Whose events the pipeline accepts, over any protocol."""

from collections.abc import Sequence

import pytest

from agent.admission import Admission, ForbiddenError
from agent.coap.answer import DIAGNOSTIC_BYTES_MAX, diagnostic
from agent.config.settings import DevicesSettings, IdentitySettings
from agent.decode.delivery_body import decode
from agent.delivery import Answer, Delivery, ForeignFormat, Media, Status
from agent.mappings.mapping import read
from agent.pipeline import Pipeline
from agent.store.port import Outcome, Submission
from tests.agent.store.stores import HandClock

OWN, OTHER = "urn:dev:mac:00158d0001a2b3c4", "urn:dev:mac:00158d0001a2b3c5"


class Intake:
    """Stores everything at once, or holds it."""

    def __init__(self, *, holds: bool = False) -> None:
        self.submissions: list[Submission] = []
        self._holds = holds

    def submit(self, submission: Submission) -> None:
        self.submissions.append(submission)
        if not self._holds:
            submission.done(Outcome(accepted=len(submission.candidates)))

    @property
    def devices(self) -> list[str]:
        return [candidate.event.device for submission in self.submissions for candidate in submission.candidates]

    @property
    def rejected(self) -> list[str]:
        return [reject.device for submission in self.submissions for reject in submission.rejects]


def body(*devices: str) -> bytes:
    return b"[" + b",".join(b'{"device":"%s","id":1,"data":{"n":1}}' % device.encode() for device in devices) + b"]"


def take(
    body: bytes,
    authenticated: str | None = None,
    *,
    relay: bool = False,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    require: str = "nothing",
    media: Media | ForeignFormat = Media.JSON,
) -> tuple[Answer, Intake]:
    intake, answers = Intake(), list[Answer]()
    pipeline = Pipeline(IdentitySettings(), HandClock(), intake, DevicesSettings(tuple(allow), tuple(deny), require))
    pipeline.receive(Delivery(body, media, "http", "http://[::1]", authenticated, relay=relay), answers.append)
    (answer,) = answers
    counts = pipeline.counts["http"]
    assert (counts.accepted, counts.rejected.total()) == (answer.accepted, answer.rejected)
    assert counts.refused.total() == (answer.status is not Status.DURABLE)
    return answer, intake


def test_an_identity_is_compared_as_the_fingerprint_sees_it() -> None:
    answer, _ = take(body("urn:x:\u00e9"), "urn:x:e\u0301")
    assert answer.status is Status.DURABLE


@pytest.mark.guarantee(2)
@pytest.mark.parametrize(
    "said",
    [body(OTHER), body(OWN, OTHER), b'[{"id":1},{"device":"%s","id":1,"data":3}]' % OTHER.encode()],
    ids=["another", "another beside its own", "an invalid event of another beside its own"],
)
def test_an_authenticated_device_that_speaks_as_another_is_refused_with_all_it_says(said: bytes) -> None:
    answer, intake = take(said, OWN)
    assert (answer.status, intake.submissions) == (Status.FORBIDDEN, [])
    assert answer.reason == f"the credentials belong to '{OWN}' only"
    assert len(answer.reason.encode()) <= DIAGNOSTIC_BYTES_MAX


@pytest.mark.guarantee(6)
@pytest.mark.parametrize(
    ("allow", "deny", "taken"),
    [
        ([], [], True),
        (["urn:dev:mac:*"], [], True),
        (["urn:dev:mac:00158d*", "x"], [], True),
        (["urn:dev:ow:*"], [], False),
        ([], [OWN], False),
        (["*"], ["urn:dev:mac:*"], False),
        ([], ["URN:DEV:*"], False),
        (["URN:DEV:*"], [], False),
    ],
)
def test_the_lists_let_a_device_in_or_not(allow: list[str], deny: list[str], taken: bool) -> None:
    answer, intake = take(body(OWN), allow=allow, deny=deny)
    assert (answer.status, intake.devices) == ((Status.DURABLE, [OWN]) if taken else (Status.FORBIDDEN, []))


def test_a_denied_device_does_not_block_those_beside_it() -> None:
    answer, intake = take(body(OTHER, OWN), deny=[OTHER])
    assert (answer.status, answer.accepted, answer.rejected) == (Status.DURABLE, 1, 1)
    assert (intake.devices, intake.rejected) == ([OWN], [OTHER])


@pytest.mark.guarantee(2)
@pytest.mark.parametrize(
    ("authenticated", "relay", "taken"),
    [(None, False, False), (None, True, False), (OWN, False, True), ("urn:relay:1", True, True)],
)
@pytest.mark.parametrize("protected", [OWN, OWN.upper()])
def test_a_device_with_credentials_is_not_believed_without_them(
    authenticated: str | None, relay: bool, taken: bool, protected: str
) -> None:
    admission = Admission(DevicesSettings())
    admission.protect([protected])
    delivery = Delivery(body(OWN), Media.JSON, "coap", "coap://[::1]", authenticated, relay=relay)
    if taken:
        assert len(admission.screen(delivery, decode(delivery)).events) == 1
    else:
        with pytest.raises(ForbiddenError, match=r"has credentials.*: use them$") as raised:
            admission.screen(delivery, decode(delivery))
        assert diagnostic(str(raised.value)) == str(raised.value).encode(), "whole in a response over CoAP"


def test_a_stranger_in_a_pack_is_put_aside_and_the_others_are_taken() -> None:
    admission = Admission(DevicesSettings())
    admission.protect(["urn:x:1"])
    delivery = Delivery(b'[{"device":"urn:x:1","id":1},{"device":"urn:x:2","id":1}]', Media.JSON, "coap", "coap://a")
    screened = admission.screen(delivery, decode(delivery))
    assert [event.device for event in screened.events] == ["urn:x:2"]
    assert [(rejected.device, rejected.raw) for rejected in screened.rejected] == [("urn:x:1", b"")]


@pytest.mark.parametrize(
    ("authenticated", "relay", "stated"),
    [(None, False, None), (OWN, False, {"auth": "token"}), ("urn:r", True, {"auth": "token", "relay": "urn:r"})],
)
def test_an_event_states_who_has_proven_to_have_sent_it(
    authenticated: str | None, relay: bool, stated: dict[str, str] | None
) -> None:
    _, intake = take(body(OWN), authenticated, relay=relay)
    assert [one.event.ext for one in intake.submissions[0].candidates] == [stated]


@pytest.mark.parametrize("authenticated", [None, OWN])
def test_no_payload_states_who_has_sent_it(authenticated: str | None) -> None:
    mapping = read({"name": "made", "device": OWN, "data": "body", "ext": "body.ext"})
    said = b'{"ext":{"auth":"oscore","relay":"urn:r","rssi":-70}}'
    _, intake = take(said, authenticated, media=ForeignFormat(mapping, [], {}))
    ext = intake.submissions[0].candidates[0].event.ext
    assert ext == {"mapping": "made", "rssi": -70, **({"auth": "token"} if authenticated else {})}


def test_anonymous_senders_are_refused_where_proof_is_required() -> None:
    answer, intake = take(body(OWN), require="authenticated")
    assert (answer.status, intake.submissions) == (Status.UNAUTHENTICATED, [])
    assert take(body(OWN), OWN, require="authenticated")[0].status is Status.DURABLE
