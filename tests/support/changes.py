"""Runs a command with all its children, of which one change below a folder fails, or all are killed right before it.

The kernel reports each system call that may change files (seccomp's user notification), and waits for the answer. A
tracer such as strace counts the calls of each process by itself, and so cannot name the N-th call of a script.
"""

import ctypes
import errno
import fcntl
import os
import platform
import select
import signal
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_PATH_FIRST, _PATH_SECOND, _DESCRIPTOR = "path first", "path second", "descriptor"
_CALLS = {
    # numbers of x86-64, and where the changed file stands
    1: ("write", _DESCRIPTOR),
    18: ("pwrite64", _DESCRIPTOR),
    20: ("writev", _DESCRIPTOR),
    40: ("sendfile", _DESCRIPTOR),
    77: ("ftruncate", _DESCRIPTOR),
    82: ("rename", _PATH_FIRST),
    83: ("mkdir", _PATH_FIRST),
    84: ("rmdir", _PATH_FIRST),
    87: ("unlink", _PATH_FIRST),
    90: ("chmod", _PATH_FIRST),
    91: ("fchmod", _DESCRIPTOR),
    257: ("openat", _PATH_SECOND),
    258: ("mkdirat", _PATH_SECOND),
    263: ("unlinkat", _PATH_SECOND),
    264: ("renameat", _PATH_SECOND),
    266: ("symlinkat", "path third"),
    268: ("fchmodat", _PATH_SECOND),
    316: ("renameat2", _PATH_SECOND),
    326: ("copy_file_range", "descriptor third"),
    88: ("symlink", _PATH_SECOND),
}
_OPENAT, _WRITE, _PWRITE, _COPY = 257, 1, 18, 326
_PIDFD_GETFD = 438
_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER = 317, 1, 8
_NO_NEW_PRIVILEGES = 38
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTIFICATION, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_CONTINUE = 1
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
POLL_MILLISECONDS = 200


class Fault(StrEnum):
    KILL = "kill"
    """The command and its children are killed right before it."""
    EIO = "EIO"
    ENOSPC = "ENOSPC"
    SHORT = "short"
    """Half of the bytes are written."""


FAULTS_OF = {
    **dict.fromkeys(("write", "pwrite64", "copy_file_range"), tuple(Fault)),
    **dict.fromkeys(
        ("openat", "mkdir", "mkdirat", "symlink", "symlinkat", "rename", "renameat", "renameat2", "sendfile", "writev"),
        (Fault.KILL, Fault.EIO, Fault.ENOSPC),
    ),
}
"""By system call; others cannot lack space."""


def can_have(change: str, fault: Fault) -> bool:
    return fault in FAULTS_OF.get(change.partition(" ")[0], (Fault.KILL, Fault.EIO))


@dataclass(frozen=True, slots=True)
class Started:
    """A command that runs, in a process group of its own; its changes wait until they are answered."""

    pid: int
    listener: int
    """A descriptor."""

    def kill(self) -> int:
        """Kill the command and its children, and return the exit status, negative for a signal."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        os.close(self.listener)  # not before: each waiting call would fail, and the command continue
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@dataclass(frozen=True, slots=True)
class Run:
    """A command that has ended, or was killed."""

    changes: tuple[str, ...]
    """The system calls below the folder, with their files."""
    status: int
    """The exit status, negative for a signal."""


def is_supported() -> bool:
    """Whether the numbers of the system calls are those of this processor."""
    return platform.machine() == "x86_64"


def _start(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Started:
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _become(command, environment, log, theirs)
    theirs.close()
    with ours:
        _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
    os.set_inheritable(listener, False)  # else later children would hold it, and the calls wait although we have ended
    return Started(pid, listener)


def run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
    fault_at: int | None = None,
    fault: Fault = Fault.KILL,
    *,
    is_enough: Callable[[], bool] = lambda: False,
) -> Run:
    """Run a command to its end, with a fault at its change number `fault_at`, counted from 0, if that can have it.

    Once `is_enough` returns True, the command is asked to end by SIGTERM. It is called between changes, and must return
    at once.
    """
    started = _start(command, environment, log)
    changes: list[str] = []
    try:
        killed = _follow(started, _Changes(folder, changes, fault_at, fault), is_enough)
    except BaseException:
        started.kill()
        raise
    if not killed:
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
    return Run(tuple(changes), started.kill())


@dataclass(frozen=True, slots=True)
class _Changes:
    """The changes of a run so far, and the fault of one of them."""

    folder: Path
    made: list[str]
    fault_at: int | None
    fault: Fault

    def add(self, change: str) -> Fault | None:
        """Note a change, and return its fault; one before which the command is killed is not noted."""
        fault = self.fault if len(self.made) == self.fault_at and can_have(change, self.fault) else None
        if fault is not Fault.KILL:
            self.made.append(change)
        return fault


def _follow(command: Started, changes: _Changes, is_enough: Callable[[], bool]) -> bool:
    """Note the changes until the command has ended; return whether it is to be killed."""
    waiting = select.poll()
    waiting.register(command.listener, select.POLLIN)
    asked = False
    while True:
        if not asked and is_enough():
            os.kill(command.pid, signal.SIGTERM)  # its children are its own concern, as with KillMode=mixed of systemd
            asked = True
        for listener, event in waiting.poll(POLL_MILLISECONDS):
            if not event & select.POLLIN:
                return False  # its last process has ended
            if _answer(listener, changes):
                return True


def _answer(listener: int, changes: _Changes) -> bool:
    """Note one call, and let it continue or fail; return whether it is the one before which the command is killed."""
    received = bytearray(_NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, received)
    except FileNotFoundError:
        return False  # the process has ended meanwhile
    number, pid, _, call, _, _, *arguments = _NOTIFICATION.unpack(received)
    file = _file(pid, call, arguments)
    fault = changes.add(f"{_CALLS[call][0]} {file}") if file and file.startswith(f"{changes.folder}/") else None
    if fault is Fault.KILL:
        return True
    answer = _ANSWER.pack(number, 0, 0, _CONTINUE)
    if fault is Fault.SHORT:
        if (count := _write_half(pid, call, arguments)) is not None:
            answer = _ANSWER.pack(number, count, 0, 0)
    elif fault is not None:
        answer = _ANSWER.pack(number, 0, -getattr(errno, fault), 0)
    with suppress(FileNotFoundError):
        fcntl.ioctl(listener, _SEND, bytearray(answer))
    return False


def _write_half(pid: int, call: int, arguments: Sequence[int]) -> int | None:
    """Write the first half of what a call is to write, and return the count; None where that cannot be done."""
    if call == _COPY:
        source, source_offset, target, target_offset, size = arguments[:5]
        if source_offset or target_offset or size < 2:
            return None
        with _descriptor(pid, source) as reading, _descriptor(pid, target) as writing:
            left = os.fstat(reading).st_size - os.lseek(reading, 0, os.SEEK_CUR)
            half = min(size, left) // 2
            try:
                return os.copy_file_range(reading, writing, half) if half else None
            except OSError:  # such as from one device to another
                return None
    descriptor, address, size, offset = arguments[:4]
    if call not in (_WRITE, _PWRITE) or size < 2:
        return None
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        data = memory.read(size // 2)
    with _descriptor(pid, descriptor) as writing:
        return os.write(writing, data) if call == _WRITE else os.pwrite(writing, data, offset)


@contextmanager
def _descriptor(thread: int, number: int) -> Iterator[int]:
    """Duplicate a descriptor of a thread's process, with its position in the file."""
    status = Path(f"/proc/{thread}/status").read_text()
    process = int(next(line.split()[1] for line in status.splitlines() if line.startswith("Tgid:")))
    pidfd = os.pidfd_open(process)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        found = libc.syscall(_PIDFD_GETFD, pidfd, number, 0)
        if found < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(pidfd)
    try:
        yield found
    finally:
        os.close(found)


def _file(pid: int, call: int, arguments: Sequence[int]) -> str | None:
    """Return the path that a call changes; None where the process is gone."""
    where = _CALLS[call][1]
    try:
        if where.startswith("descriptor"):
            return str(Path(f"/proc/{pid}/fd/{arguments[2 if 'third' in where else 0]}").readlink())
        place = {_PATH_FIRST: 0, _PATH_SECOND: 1, "path third": 2}[where]
        path = _text(pid, arguments[place])
        if path.startswith("/"):
            return path
        at = ctypes.c_int(arguments[place - 1]).value if place else -100
        base = f"/proc/{pid}/cwd" if at < 0 or call == 88 else f"/proc/{pid}/fd/{at}"
        return f"{Path(base).readlink()}/{path}"
    except OSError:
        return None


def _text(pid: int, address: int) -> str:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        found = b""
        while b"\0" not in found and len(found) < 4_096:
            # Not beyond the page, after which there may be no memory.
            if not (more := memory.read(4_096 - (address + len(found)) % 4_096)):
                break
            found += more
        return os.fsdecode(found.partition(b"\0")[0])


def _become(command: Sequence[str], environment: Mapping[str, str], log: Path, parent: socket.socket) -> None:
    """Become the command in a process group of its own, with the filter."""
    try:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        program = _filter()
        code = ctypes.create_string_buffer(program)
        head = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(code)))
        listener = libc.syscall(_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER, head)
        if listener < 0:
            os._exit(70)
        socket.send_fds(parent, [b"1"], [listener])
        os.close(listener)
        parent.close()
        os.execvpe(command[0], list(command), dict(environment))
    finally:
        os._exit(71)


def _filter() -> bytes:
    """Return the program: report calls of the table; of openat only those that may change a file."""

    def instruction(code: int, yes: int, no: int, value: int) -> bytes:
        return struct.pack("=HBBI", code, yes, no, value)

    others = [number for number in _CALLS if number != _OPENAT]
    size = len(others)
    program = [instruction(_LOAD, 0, 0, 0), instruction(_EQUAL, 0, 3, _OPENAT)]
    program += [instruction(_LOAD, 0, 0, 32), instruction(_ANY_BIT, size + 2, 0, _WRITING_FLAGS)]
    program += [instruction(_RETURN, 0, 0, _ALLOW)]
    program += [instruction(_EQUAL, size - place, 0, number) for place, number in enumerate(others)]
    return b"".join([*program, instruction(_RETURN, 0, 0, _ALLOW), instruction(_RETURN, 0, 0, _NOTIFY)])
