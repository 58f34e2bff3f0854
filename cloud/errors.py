"""The errors that can end the job, by what resolves them: another try, or a decision by a person."""


class JobError(Exception):
    """Root of all errors of the job."""


class StopError(JobError):
    """Continuing would lose, duplicate or falsely receipt events; each start fails until an operator has decided."""


class FlushError(StopError):
    """A flush to disk has failed; data written before may be lost even if the next flush succeeds."""


class SinkError(JobError):
    """The table cannot be reached, or refuses; no batch is committed in part, and a new start may succeed."""


class KafkaError(JobError):
    """Kafka does not answer, or refuses; the table is complete nevertheless, and the next try may succeed."""


class RestartError(JobError):
    """The query begins anew, with another plan and other consumers; nothing of its batch is receipted."""


class HookError(JobError):
    """The user's own function has failed; nothing of the batch is receipted, and the next try may succeed."""


class HookTimeError(JobError):
    """The user's own function has not returned within its time; it may still be running in this process."""


class EndingError(JobError):
    """A batch was not finished when the job ended; nothing of it is receipted, and the next start goes on with it."""
