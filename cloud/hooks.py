"""The user's own functions, named MODULE:FUNCTION: how they are found, and what is said of their errors.

A transform, in Spark and without it, may add columns to rows, and reject some with a reason.
"""

import argparse
import ast
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cloud.errors import HookError, JobError, SinkError, StopError

REJECT = "reject"
REJECTED = "rejected: "
"""Begins the reason in quarantine."""
MESSAGE_CHARACTERS_MAX = 500
_PLACE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)|called from\n(?P<at>.+):(?P<number>\d+)')
"""A line of a traceback, also of one from an executor; or Spark's note of where a column was made."""
_NOT_THE_USERS = re.compile(r"/(pyspark|py4j|importlib|cloud)/|<frozen ")
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")


@dataclass(frozen=True, slots=True)
class Hook:
    """A function of the user's."""

    name: str
    """As given: MODULE:FUNCTION."""
    load: Callable[[], Callable[..., Any]]
    """Imports the module where that is not done yet; it may need Spark's session."""

    def check(self) -> None:
        """Raise HookError where its module cannot be imported, which is to end a program at its start."""
        with self.called():
            pass

    @contextmanager
    def called(self) -> Iterator[Callable[..., Any]]:
        """Yield the function; raise HookError, with file, line and message, for each error but the job's own."""
        call = None
        try:
            call = self.load()
            yield call
        except Exception as error:
            if isinstance(error, JobError) and not isinstance(error, SinkError):  # the latter is of a helper's database
                raise
            code = getattr(call, "__code__", None)
            raise HookError(f"{self.name}: {_sentence(error, code and code.co_filename)}") from error

    def broken(self, what: str) -> StopError:
        """Return the error for what a transform has returned."""
        return StopError(f"transform {self.name}: {what}. Nothing of the batch is written or receipted")

    def other_rows(self, rows: int, counts: Mapping[str, int]) -> StopError:
        """Return the error for other rows than the given ones; `counts` are the lost, doubled and other ones."""
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        return self.broken(
            f"of {rows} rows it has {told}. It may add columns, and leave out a row only by a text in the column "
            f"{REJECT}"
        )


def find(text: str) -> Hook:
    """Return a function by its name, from the current folder or PYTHONPATH; raise ArgumentTypeError without one.

    Its module is only read, since before Spark's session there is nothing that it may call.
    """
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not MODULE:FUNCTION")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec = find_spec(module)
        file = None if spec is None or spec.origin is None else Path(spec.origin)
        names = _names(file) if file is not None and file.suffix == ".py" else None
    except ModuleNotFoundError:
        spec = None
    except Exception as error:  # of the user's code
        raise argparse.ArgumentTypeError(f"{module} cannot be imported: {_sentence(error)}") from error
    if spec is None:
        raise argparse.ArgumentTypeError(f"no module {module} in {folder} or on PYTHONPATH")
    if names is not None and not {name, "*"} & names:
        raise argparse.ArgumentTypeError(f"{module} ({file}) has no function {name}")
    return Hook(text, partial(_load, module, name))


def _names(file: Path) -> set[str]:
    """Return the names that a module defines or imports at any place; `*` where it imports all of another."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes(), str(file))):
        match node:
            case ast.FunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.alias(name=name, asname=other):
                names.add(other or name)
    return names


def _load(module: str, name: str) -> Callable[..., Any]:
    loaded = import_module(module)
    if "pyspark" in sys.modules:
        import_module("pyspark.cloudpickle").register_pickle_by_value(loaded)  # the executors have no such file
    call: Callable[..., Any] = getattr(loaded, name)
    return call


def _sentence(error: Exception, file: str | None = None) -> str:
    """Return place and message of an error in one line; the place is the last one in `file`, or else in no library."""
    text = "".join(traceback.format_exception(error))
    found = [(m["file"] or m["at"], m["line"] or m["number"]) for m in _PLACE.finditer(text)]
    own = [place for place in found if place[0] == file]
    own = own or [place for place in found if not _NOT_THE_USERS.search(place[0])] or found
    raised = _RAISED.findall(str(error))
    said = raised[-1] if raised else f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return f"{':'.join(own[-1])}: {said[:MESSAGE_CHARACTERS_MAX]}" if own else said[:MESSAGE_CHARACTERS_MAX]
