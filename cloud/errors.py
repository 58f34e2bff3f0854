"""What can end the job, by what helps: another try, or a person."""


class JobError(Exception):
    """Root of all errors of the job."""


class StopError(JobError):
    """Going on would lose, double or falsely receipt events: a person has to decide; starting again gives the same."""


class FlushError(StopError):
    """The disk has refused a flush: what was written may be lost, though the next flush succeeds."""


class SinkError(JobError):
    """The table cannot be reached, or has refused; nothing is committed in halves, and a new start may succeed."""


class KafkaError(JobError):
    """Kafka does not answer, or refuses; the table has everything all the same, and the next try may succeed."""


class ReelectedError(JobError):
    """A leader was elected since the query's consumers began to read; the same batch is read anew by new ones."""
