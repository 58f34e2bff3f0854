"""The life of a service in local processes: started on entering its context, killed on leaving it."""

from abc import ABC, abstractmethod
from typing import Self

from simulators.services.process import Process


class Service(ABC):
    """A service in one or several local processes, which can be killed and started again."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # includes an interrupt: the caller does not hold the service yet
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def start(self) -> None:
        """Start the service and return once it can be used."""

    @abstractmethod
    def kill(self) -> None:
        """End the service by SIGKILL; do nothing where it does not run."""

    def close(self) -> None:
        """End the service for good."""
        self.kill()


class ProcessService(Service):
    """A service in one process."""

    process: Process

    def stop(self) -> None:
        """End the service by SIGTERM."""
        self.process.terminate()

    def kill(self) -> None:
        """End the service by SIGKILL; do nothing where it does not run."""
        self.process.kill()

    def pause(self) -> None:
        """Pause the service (SIGSTOP); its connections stay open."""
        self.process.pause()

    def resume(self) -> None:
        """Resume the service (SIGCONT)."""
        self.process.resume()
