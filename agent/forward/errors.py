"""What can go wrong between the outbox and Kafka, and whether it is worth trying again."""


class ForwardError(Exception):
    """Root of this package's errors."""


class KafkaSettingsError(ForwardError):
    """The settings can never work: no use in trying again."""


class ClonedError(ForwardError):
    """Another agent sends under our name: no use in trying again before one of the two is ended."""


class SessionError(ForwardError):
    """A producer session is over; what was not marked is sent again by the next one."""


class RefusedError(SessionError):
    """The broker has refused a request as too large: its records have to go one by one."""


class RenewalError(SessionError):
    """Nothing is wrong with the way to Kafka, but this session's clients or records prove nothing any more."""


class ClockSetBackError(RenewalError):
    """The wall clock was set back: the clients may wait for as long as it was."""


class LeaderChangedError(RenewalError):
    """A partition got another leader between the first send and the last ack: what it had acked may be lost."""


class UnreachableError(SessionError):
    """No broker answers."""


class TopicMissingError(SessionError):
    """The topic does not exist (yet)."""


class TopicReplacedError(SessionError):
    """The topic is another one than at the session's start, under the same name."""
