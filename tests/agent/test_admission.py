"""Whose events the pipeline accepts, over any protocol, and the share of each device and of each address."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import count as numbers
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.admission import BURST_SECONDS, NAMES_MAX, Admission, ForbiddenError, Numbers
from agent.coap.answer import DIAGNOSTIC_BYTES_MAX, TOO_MANY_REQUESTS, diagnostic, reply_to
from agent.config.settings import DevicesSettings, IdentitySettings
from agent.decode.delivery_body import decode
from agent.delivery import Answer, Delivery, ForeignFormat, Media, Status
from agent.http.response import response_to
from agent.mappings.mapping import read
from agent.pipeline import Pipeline
from agent.store.port import Outcome, Reject, Submission
from contract.event import Event
from tests.agent.store.stores import HandClock

OWN, OTHER = "urn:dev:mac:00158d0001a2b3c4", "urn:dev:mac:00158d0001a2b3c5"


class Intake:
    """Stores everything at once, but for what a submission or the test refuses; or holds it."""

    def __init__(self, *, holds: bool = False) -> None:
        self.submissions: list[Submission] = []
        self._holds = holds
        self.fingerprints = set[bytes | None]()
        self.undelivered = 0
        self.refuses_last = False
        """Whether there is no space for the last event of a body, which is in another lane than the others."""

    def submit(self, submission: Submission) -> None:
        new = tuple(one.fingerprint not in self.fingerprints for one in submission.candidates)
        if submission.refusal and any(new):
            submission.done(Outcome(refusal=submission.refusal, retry_seconds=60))
            return
        if self.refuses_last:
            submission.done(Outcome(refusal="full", retry_seconds=60, new=(*new[:-1], False)))
            return
        self.submissions.append(submission)
        if self._holds:
            return
        self.fingerprints.update(one.fingerprint for one in submission.candidates)
        self.undelivered += sum(new)
        submission.done(Outcome(accepted=len(submission.candidates), new=new))

    @property
    def stored(self) -> list[Event]:
        return [candidate.event for submission in self.submissions for candidate in submission.candidates]

    @property
    def rejected(self) -> list[Reject]:
        return [reject for submission in self.submissions for reject in submission.rejects]


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
    stored = [event.device for event in intake.stored]
    assert (answer.status, stored) == ((Status.DURABLE, [OWN]) if taken else (Status.FORBIDDEN, []))


def test_a_denied_device_does_not_block_those_beside_it() -> None:
    answer, intake = take(body(OTHER, OWN), deny=[OTHER])
    assert (answer.status, answer.accepted, answer.rejected) == (Status.DURABLE, 1, 1)
    assert [event.device for event in intake.stored] == [OWN]
    assert [reject.device for reject in intake.rejected] == [OTHER]


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
    assert [event.ext for event in intake.stored] == [stated]


@pytest.mark.parametrize("authenticated", [None, OWN])
def test_no_payload_states_who_has_sent_it(authenticated: str | None) -> None:
    mapping = read({"name": "made", "device": OWN, "data": "body", "ext": "body.ext"})
    said = b'{"ext":{"auth":"oscore","relay":"urn:r","rssi":-70}}'
    _, intake = take(said, authenticated, media=ForeignFormat(mapping, [], {}))
    assert intake.stored[0].ext == {"mapping": "made", "rssi": -70, **({"auth": "token"} if authenticated else {})}


def test_anonymous_senders_are_refused_where_proof_is_required() -> None:
    answer, intake = take(body(OWN), require="authenticated")
    assert (answer.status, intake.submissions) == (Status.UNAUTHENTICATED, [])
    assert take(body(OWN), OWN, require="authenticated")[0].status is Status.DURABLE


RATE = 2
BODY_EVENTS_MAX = 512
DEVICES, ADDRESSES = ("urn:a", "urn:b"), ("[::1]", "[::2]")
SENT = st.tuples(
    st.integers(0, 30_000), st.sampled_from(DEVICES), st.sampled_from(ADDRESSES), st.sampled_from([1, 1, 1, 3, 512])
)


class Gateway:
    def __init__(self, devices: DevicesSettings | None = None) -> None:
        self.clock, self.intake = HandClock(), Intake()
        devices = devices or DevicesSettings(events_per_second_max=RATE)
        undelivered = lambda: self.intake.undelivered  # noqa: E731
        self.pipeline = Pipeline(IdentitySettings(), self.clock, self.intake, devices, undelivered=undelivered)

    def refusal(
        self,
        device: str,
        sender: str,
        count: int = 1,
        via: str = "http",
        *,
        relay: bool = False,
        id_: int | None = None,
    ) -> Answer | None:
        """Send events; return the refusal, None where they are stored."""
        event = {"device": device, "data": {"n": 1}} | ({} if id_ is None else {"id": id_})
        return self.refusal_of([event] * count, sender, via, relay=relay)

    def refusal_of(
        self, events: Sequence[Mapping[str, object]], sender: str, via: str = "http", *, relay: bool = False
    ) -> Answer | None:
        """Send a body of events; return the refusal, None where they are stored."""
        self.intake.submissions.clear()
        answers: list[Answer] = []
        authenticated = "urn:relay" if relay else None
        body = json.dumps(events).encode()
        self.pipeline.receive(Delivery(body, Media.JSON, via, sender, authenticated, relay=relay), answers.append)
        return None if answers[0].status is Status.DURABLE and not answers[0].reason else answers[0]


@pytest.mark.guarantee(6)
@given(st.lists(SENT, max_size=60))
def test_nobody_exceeds_a_share_and_whoever_waits_as_told_is_taken(sent: Sequence[tuple[int, str, str, int]]) -> None:
    gateway = Gateway()
    taken: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for pause, device, address, count in sent:
        gateway.clock.pass_seconds(pause / 1000)
        now = gateway.clock.monotonic_ms()
        refusal = gateway.refusal(device, address, count)
        if refusal is None:
            for name in (device, address):
                taken[name].append((now, count))
                for at, _ in taken[name]:
                    within = sum(number for when, number in taken[name] if when >= at)
                    assert within <= RATE * ((now - at) / 1000 + BURST_SECONDS) + max(n for _, n in taken[name])
        else:
            assert refusal.status is Status.TOO_MANY
            gateway.clock.pass_seconds(refusal.retry_seconds)
            assert gateway.refusal(device, address, count) is None
            for name in (device, address):
                taken[name].append((gateway.clock.monotonic_ms(), count))


def test_a_share_is_of_one_device_and_address_and_an_address_of_many_devices_has_none() -> None:
    gateway = Gateway()
    assert gateway.refusal("urn:a", "[::1]", BODY_EVENTS_MAX) is None
    refusal = gateway.refusal("urn:a", "[::2]")
    assert refusal is not None
    assert response_to(refusal).code == 429
    assert ("Retry-After", str(BODY_EVENTS_MAX // RATE - BURST_SECONDS)) in response_to(refusal).fields
    reply = reply_to(refusal, 1024)
    assert (reply.code, reply.max_age) == (TOO_MANY_REQUESTS, BODY_EVENTS_MAX // RATE - BURST_SECONDS)
    assert gateway.refusal("urn:b", "[::1]") is not None, "of the same address"
    assert gateway.refusal("urn:b", "[::2]") is None
    assert gateway.pipeline.counts["http"].refused == {Status.TOO_MANY: 2}
    for relay, via in ((True, "http"), (False, "mqtt")):
        assert gateway.refusal("urn:c" + via, "[::9]", BODY_EVENTS_MAX, via, relay=relay) is None
        assert gateway.refusal("urn:d" + via, "[::9]", 1, via, relay=relay) is None
        assert gateway.refusal("urn:c" + via, "[::9]", 1, via, relay=relay) is not None
    (rejected,) = gateway.intake.rejected
    assert rejected.reason == "more events than devices.events_per_second_max", "over MQTT it is set aside"


def test_a_device_that_is_named_as_an_address_takes_nothing_of_its_share() -> None:
    gateway = Gateway()
    assert gateway.refusal("[::1]", "[::2]", BODY_EVENTS_MAX) is None
    assert gateway.refusal("http://[::1]", "http://[::1]", BODY_EVENTS_MAX, "zigbee2mqtt") is None
    assert gateway.refusal("urn:a", "http://[::1]") is None


def test_an_address_has_one_share_over_all_protocols() -> None:
    gateway = Gateway()
    assert gateway.refusal("urn:a", "coap://[::1]", BODY_EVENTS_MAX, "coap") is None
    assert gateway.refusal("urn:b", "http://[::1]") is not None


STORED_BYTES_MAX = 2_000
EVENT_BYTES = 220
"""More than what one of the events here takes."""


@pytest.mark.guarantee(6)
@pytest.mark.parametrize(
    "devices", [DevicesSettings(events_per_second_max=RATE), DevicesSettings(stored_bytes_max=STORED_BYTES_MAX)]
)
def test_nobody_is_forgotten_for_the_number_of_names_that_follow_and_who_comes_then_has_a_share(
    devices: DevicesSettings,
) -> None:
    gateway, ids = Gateway(devices), numbers()
    assert gateway.refusal_of([{"device": "urn:a", "id": id_} for id_ in islice(ids, BODY_EVENTS_MAX)], "[::1]") is None
    for address in range(3 * NAMES_MAX // BODY_EVENTS_MAX):
        body = [{"device": f"urn:{id_}", "id": id_} for id_ in islice(ids, BODY_EVENTS_MAX)]
        assert gateway.refusal_of(body, f"[::2:{address}]") is None
    assert gateway.refusal("urn:b", "[::1]", id_=-1) is not None
    assert gateway.refusal("urn:a", "[::3]", id_=-2) is not None
    assert gateway.refusal("urn:c", "[::3]", id_=-3) is None


@pytest.mark.guarantee(6)
@given(st.lists(st.tuples(st.sampled_from(DEVICES), st.sampled_from(ADDRESSES), st.booleans()), max_size=60))
def test_nobodys_undelivered_events_exceed_a_share_of_the_store(sent: Sequence[tuple[str, str, bool]]) -> None:
    gateway = Gateway(DevicesSettings(stored_bytes_max=STORED_BYTES_MAX))
    stored: Counter[str] = Counter()
    for number, (device, address, again) in enumerate(sent):
        refusal = gateway.refusal(device, address, id_=number)
        if refusal is None:
            stored.update((device, address))
            if again:
                assert gateway.refusal(device, address, id_=number) is None, "sent again: acked, and not counted"
        else:
            assert refusal.status is Status.TOO_MANY
            assert refusal.reason == "more undelivered events than devices.stored_bytes_max"
            assert max(stored[device], stored[address]) * EVENT_BYTES >= STORED_BYTES_MAX
    assert all((count - 1) * 100 < STORED_BYTES_MAX for count in stored.values())
    gateway.intake.undelivered = 0
    gateway.clock.pass_seconds(1)
    for number, (device, address, _) in enumerate(sent[:5]):
        assert gateway.refusal(device, address, id_=-1 - number) is None, "all is delivered"


def test_a_share_of_the_store_grows_with_what_is_delivered_and_is_not_that_of_relays_or_mqtt() -> None:
    gateway, ids = Gateway(DevicesSettings(stored_bytes_max=STORED_BYTES_MAX)), numbers()

    def fill(device: str, sender: str, *, relay: bool = False) -> int:
        return next(n for n in numbers() if gateway.refusal(device, sender, id_=next(ids), relay=relay) is not None)

    whole = fill("urn:a", "[::1]")
    assert STORED_BYTES_MAX / EVENT_BYTES < whole < STORED_BYTES_MAX / 100
    assert fill("urn:b", "[::1]") == 0, "of the same address"
    gateway.intake.undelivered //= 2
    gateway.clock.pass_seconds(1)
    assert fill("urn:b", "[::1]") in (whole // 2, whole // 2 + 1)
    assert fill("urn:c", "[::9]", relay=True) == fill("urn:d", "[::9]", relay=True) > whole // 2
    for _ in range(2 * whole):
        assert gateway.refusal("urn:e", "[::7]", via="mqtt", id_=next(ids)) is None


def test_what_waits_of_mqtt_counts_for_nobody_whose_events_are_delivered() -> None:
    gateway, ids = Gateway(DevicesSettings(stored_bytes_max=STORED_BYTES_MAX)), numbers()
    for _ in range(10 * STORED_BYTES_MAX // EVENT_BYTES):
        for _ in range(20):
            assert gateway.refusal("urn:e", "[::7]", via="mqtt", id_=next(ids)) is None
        assert gateway.refusal("urn:a", "[::1]", id_=next(ids)) is None
        gateway.intake.undelivered = 20
        gateway.clock.pass_seconds(1)


def test_of_a_body_whose_other_events_a_full_lane_refuses_what_is_stored_counts() -> None:
    gateway, ids = Gateway(DevicesSettings(stored_bytes_max=STORED_BYTES_MAX)), numbers()
    gateway.intake.refuses_last = True
    refused = [
        gateway.refusal_of([{"device": "urn:a", "id": next(ids)} for _ in range(2)], "[::1]")
        for _ in range(STORED_BYTES_MAX // 100)
    ]
    assert [one and one.status for one in (refused[0], refused[-1])] == [Status.UNAVAILABLE, Status.TOO_MANY]


def test_names_are_bounded() -> None:
    gateway = Gateway()
    for number in range(2 * NAMES_MAX):
        gateway.refusal(f"urn:{number}", f"[::{number:x}]")
    assert gateway.refusal("urn:0", "[::0]", BODY_EVENTS_MAX) is None
    assert gateway.refusal("urn:0", "[::0]") is not None


def test_no_name_has_less_than_its_number_however_many_follow() -> None:
    kept, set_to = Numbers(), {f"urn:{number}": number % 97.0 for number in range(2 * NAMES_MAX)}
    for name, number in set_to.items():
        kept.set(name, number)
    assert all(kept.get(name) >= number for name, number in set_to.items())
