"""A transactional producer as the agent uses it, on the simulated cluster."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from cloud.committed import Committed
from tests.schedules.kafka.clients import FENCED, RETRY_SECONDS, Producer, _Sent
from tests.schedules.kafka.cluster import Cluster
from tests.schedules.kafka.coordinator import Refusal
from tests.schedules.kafka.log import Outcome
from tests.schedules.scheduler import Scheduler
from tests.schedules.threads import Answer, void

BUSY_SECONDS: Final = 0.05
"""After which a request is sent again that the coordinator has refused for the time being."""


class TransactionalProducer(Producer):
    """A producer with a transactional id; its calls wait for the coordinator's answer.

    A request is sent again once its connection has ended, with or without its answer, or once `socket.timeout.ms` is
    over: then the first one may still arrive.
    """

    def __init__(self, scheduler: Scheduler, cluster: Cluster, config: Mapping[str, Any]) -> None:
        super().__init__(scheduler, cluster, config)
        self._socket_seconds = int(config["socket.timeout.ms"]) / 1000
        self._added: set[int] = set()
        """The partitions of the transaction of which the coordinator knows."""

    def init_transactions(self, timeout: float) -> None:
        """Take the id, and end what an earlier producer has begun."""
        self._id = self._call("init", lambda: self._cluster.coordinator.init(self._transactional_id), timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction, which the coordinator hears of with its first record."""
        self._check()
        self._added = set()

    def send_offsets_to_transaction(self, positions: Sequence[TopicPartition], group: str, timeout: float) -> None:
        offsets = {one.partition: Committed(one.offset, None, one.metadata or "") for one in positions}
        coordinator, name = self._cluster.coordinator, self._transactional_id
        self._call("adds offsets", lambda: coordinator.add_offsets(name, self._id, group, offsets), timeout)

    def commit_transaction(self, timeout: float) -> None:
        """Commit the transaction; an error leaves open whether it is."""
        self._end(Outcome.COMMITTED, timeout)

    def abort_transaction(self, timeout: float) -> None:
        self._end(Outcome.ABORTED, timeout)

    def flush(self, timeout: float) -> int:
        """Wait until nothing is to be reported; return how much still is."""
        end = self._scheduler.now + timeout
        while len(self) and self._scheduler.now < end:
            if not self.poll(0):
                self._scheduler.wait(BUSY_SECONDS, "flush")
        return len(self)

    def _end(self, outcome: Outcome, timeout: float) -> None:
        coordinator, name = self._cluster.coordinator, self._transactional_id
        end = partial(coordinator.end, name, self._id, outcome)
        if self._added:
            is_delayed = outcome is Outcome.COMMITTED and coordinator.delay(name, lambda: void(end()))
            self._call(outcome.value, end, timeout, is_delayed=is_delayed)

    def _attempt(self, number: int, request: list[_Sent]) -> None:
        """Send a request to a partition once the coordinator knows that it belongs to the transaction."""
        if number in self._added:
            super()._attempt(number, request)
            return
        coordinator, name = self._cluster.coordinator, self._transactional_id

        def take(refusal: Refusal | None) -> None:
            if refusal is not None:
                self._settle(number, request, refusal)
            elif self._lines[number].request is request:
                self._added.add(number)
                self._attempt(number, request)

        self._request(
            f"adds {number}",
            lambda: coordinator.add(name, self._id, number),
            take,
            lambda: number in self._added or self._lines[number].request is not request,
        )

    def _call(self, what: str, perform: Callable[[], Any], seconds: float, *, is_delayed: bool = False) -> Any:
        """Send a request until there is an answer, and return it; raise KafkaException for an error or without one."""
        self._check()
        answer: Answer[Any] = Answer(self._scheduler)
        self._scheduler.pause(what)
        self._request(what, perform, answer.set_result, answer.done, is_delayed=is_delayed)
        timed_out = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
        self._scheduler.call(seconds, f"{what} expires", lambda: answer.set_exception(timed_out))
        result = answer.result()
        if isinstance(result, Refusal):
            self._end_by(FENCED)
            self._check()
        return result

    def _request(
        self,
        what: str,
        perform: Callable[[], Any],
        take: Callable[[Any], None],
        is_over: Callable[[], bool],
        *,
        is_delayed: bool = False,
    ) -> None:
        """Send a request, and again until there is an answer or nobody waits for it; a delayed one is elsewhere."""
        sent = 0

        def send() -> None:
            nonlocal sent
            if is_over() or not self._process.alive:
                return
            sent += 1
            number = sent

            def again() -> None:
                if number == sent:
                    send()

            def lost() -> None:
                self._scheduler.call(RETRY_SECONDS, "retry", again)

            def answered(result: Any) -> None:
                if result is Refusal.BUSY:
                    self._scheduler.call(BUSY_SECONDS, "busy", again)
                elif not is_over():
                    take(result)

            if number > 1 or not is_delayed:
                self._cluster.request(f"{self._process.name} {what}", perform, self._alive(answered), lost)
            self._scheduler.call(self._socket_seconds, "request expires", again)

        send()

    def _check(self) -> None:
        """Raise the error that has ended the producer."""
        if self._has_ended:
            raise KafkaException(FENCED)
