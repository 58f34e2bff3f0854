"""The errors between the outbox and Kafka; each class determines whether to retry."""


class ForwardError(Exception):
    """Root of this package's errors."""


class KafkaSettingsError(ForwardError):
    """The settings can never work: do not retry."""


class ClonedError(ForwardError):
    """Another agent sends under this gateway's name: do not retry before one of the two is stopped."""


class SessionError(ForwardError):
    """A producer session has ended; the next one sends unmarked events again."""


class RefusedError(SessionError):
    """The broker has refused a request as too large: its records have to be sent one by one."""


class RenewalError(SessionError):
    """The connection works, but this session's clients can no longer confirm what was sent.

    The wall clock was set back, so that they may wait for that much longer; or a partition's leader changed between the
    first send and the last ack, so that acked records may be lost.
    """


class UnreachableError(SessionError):
    """No broker answers."""


class TopicMissingError(SessionError):
    """The topic does not exist (yet)."""


class UnsupportedError(SessionError):
    """The service lacks what receipts depend on; only another service, or a newer one, changes that."""
