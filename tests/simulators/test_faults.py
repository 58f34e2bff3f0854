from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from simulators.link.faults import (
    HELD_BACK_SECONDS,
    BurstLoss,
    Corrupt,
    Duplicate,
    LinkDown,
    LinkFault,
    Loss,
    MtuLimit,
    Packet,
    Reorder,
    SharedChannel,
    apply_all,
    link_profile,
)
from simulators.scenario import LinkOutage, LinkPlan

MANY = 20_000


def _arrived(fault: LinkFault, datagram: bytes = b"x") -> list[bool]:
    return [bool(fault.apply(Packet(datagram))) for _ in range(MANY)]


def test_one_lost_frame_loses_the_whole_datagram() -> None:
    arrived = sum(_arrived(Loss(0.1, Random(1), frame_bytes=96), bytes(300)))  # four frames
    assert abs(arrived / MANY - 0.9**4) < 0.02


def test_bursts_have_their_length_and_share() -> None:
    arrived = _arrived(BurstLoss(loss=1.0, begins=0.02, ends=0.2, random=Random(1)))
    lost = arrived.count(False)
    bursts = sum(not now and before for before, now in pairwise(arrived))
    assert abs(lost / MANY - 0.02 / 0.22) < 0.02
    assert 4 < lost / bursts < 6


def test_airtime_is_shared_and_heeds_the_duty_cycle() -> None:
    channel = SharedChannel(bits_per_second=8_000, duty_cycle=0.5, frame_bytes=0)
    packets = [channel.apply(Packet(bytes(69), now=0.0))[0] for _ in range(3)]  # with overhead 100 bytes: 0.1 s
    assert [round(packet.seconds, 6) for packet in packets] == [0.1, 0.3, 0.5]
    (later,) = channel.apply(Packet(bytes(69), now=10.0))
    assert round(later.seconds, 6) == 0.1


def test_a_datagram_above_the_mtu_is_dropped() -> None:
    assert MtuLimit(1280).apply(Packet(bytes(1280)))
    assert not MtuLimit(1280).apply(Packet(bytes(1281)))


def test_an_outage_has_its_span() -> None:
    dead = LinkDown([(1.0, 2.0), (5.0, 6.0)])
    moments = (0.0, 1.0, 1.9, 2.0, 5.5, 6.0)
    assert [bool(dead.apply(Packet(b"x", now=now))) for now in moments] == [True, False, False, True, False, True]


def test_answers_alone_may_be_lost_by_schedule() -> None:
    profile = link_profile(LinkPlan(outages=(LinkOutage(1.0, 2.0, answers_only=True),)))
    packet = Packet(b"x", now=1.5)
    assert apply_all(profile.requests(Random(1)), packet)
    assert not apply_all(profile.answers(Random(1)), packet)


def test_noise_never_holds_the_datagram() -> None:
    corrupt, datagram = Corrupt(1.0, Random(1)), bytes(range(100))
    damaged = [corrupt.apply(Packet(datagram))[0].datagram for _ in range(500)]
    assert all(len(one) <= 4 or (len(one) == 100 and one != datagram) for one in damaged)


def test_some_are_held_back_and_some_come_twice() -> None:
    held = [Reorder(0.3, Random(seed)).apply(Packet(b"x"))[0].seconds for seed in range(500)]
    assert set(held) == {0.0, HELD_BACK_SECONDS}
    copies = [len(Duplicate(0.3, Random(seed)).apply(Packet(b"x"))) for seed in range(500)]
    assert set(copies) == {1, 2}
    assert 100 < copies.count(2) < 200


RATES = st.floats(0, 1)


@given(
    plan=st.builds(
        LinkPlan,
        request_loss=RATES,
        burst_loss=RATES,
        jitter_seconds=RATES,
        reordered=RATES,
        duplicated=RATES,
        corrupted=RATES,
        frame_bytes=st.sampled_from([0, 20, 96]),
        bits_per_second=st.sampled_from([0, 250_000]),
    ),
    seed=st.integers(0, 1 << 32),
    datagrams=st.lists(st.binary(max_size=200), max_size=30),
)
def test_the_same_seed_gives_the_same_fates(plan: LinkPlan, seed: int, datagrams: list[bytes]) -> None:
    def fates() -> list[list[Packet]]:
        faults = link_profile(plan).requests(Random(seed))
        return [list(apply_all(faults, Packet(datagram, now=float(n)))) for n, datagram in enumerate(datagrams)]

    first = fates()
    assert first == fates()
    assert all(packet.seconds >= 0 for packets in first for packet in packets)
    if not plan.corrupted:
        assert all(
            packet.datagram == said for said, packets in zip(datagrams, first, strict=True) for packet in packets
        )
