"""Runs a command with all its children, and kills all of them right before one of their changes below a folder.

The kernel reports each system call that may change files (seccomp's user notification), and waits for the answer. A
tracer such as strace counts the calls of each process by itself, and so cannot name the N-th call of a script.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import select
import signal
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
_OPENAT = 257
_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER = 317, 1, 8
_NO_NEW_PRIVILEGES = 38
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTIFICATION, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_CONTINUE = 1
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
POLL_MILLISECONDS = 200


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


def run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
    kill_at: int | None = None,
    *,
    is_enough: Callable[[], bool] = lambda: False,
) -> Run:
    """Run a command to its end, or until right before its change number `kill_at`, counted from 0.

    Once `is_enough` returns True, the command is asked to end by SIGTERM. It is called between changes, and must return
    at once.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _become(command, environment, log, theirs)
    theirs.close()
    _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
    changes: list[str] = []
    try:
        _follow(listener, pid, folder, changes, kill_at, is_enough)
    except BaseException:
        os.killpg(pid, signal.SIGKILL)
        raise
    finally:
        os.close(listener)
        ours.close()
    return Run(tuple(changes), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _follow(
    listener: int, pid: int, folder: Path, changes: list[str], kill_at: int | None, is_enough: Callable[[], bool]
) -> None:
    """Note the changes until the command has ended, or is killed."""
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    asked = False
    while True:
        if not asked and is_enough():
            os.kill(pid, signal.SIGTERM)  # its children are its own concern, as with systemd's KillMode=mixed
            asked = True
        events = waiting.poll(POLL_MILLISECONDS)
        if events and events[0][1] & select.POLLIN:
            if _answer(listener, folder, changes, kill_at):
                os.killpg(pid, signal.SIGKILL)
                return
        elif events:
            return  # the last process has ended


def _answer(listener: int, folder: Path, changes: list[str], kill_at: int | None) -> bool:
    """Note one call, and let it continue; return whether it is the one before which the command is killed."""
    received = bytearray(_NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, received)
    except FileNotFoundError:
        return False  # the process has ended meanwhile
    number, pid, _, call, _, _, *arguments = _NOTIFICATION.unpack(received)
    file = _file(pid, call, arguments)
    if file is not None and file.startswith(f"{folder}/"):
        if len(changes) == kill_at:
            return True
        changes.append(f"{_CALLS[call][0]} {file}")
    with suppress(FileNotFoundError):
        fcntl.ioctl(listener, _SEND, bytearray(_ANSWER.pack(number, 0, 0, _CONTINUE)))
    return False


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
