"""The command `oncegate-cloud`."""

import os
import shlex
import sys

from cloud.cli import commands, spark
from cloud.cli.commands import PROGRAM, Engine, Invocation
from cloud.errors import JobError
from cloud.jars.coordinates import JarError
from cloud.runtime.outcome import NEXT_STEP, sentence


def main() -> None:
    """Run the command and exit: 0 success, 1 a failure, 2 wrong usage."""
    try:
        sys.exit(run(commands.parse(sys.argv[1:])))
    except ModuleNotFoundError as error:
        print_error(f"{error.name} is not installed; from the checkout: pip install '.[cloud]'")
    except (JarError, JobError, OSError) as error:
        print_error(str(error))
    except KeyboardInterrupt:
        pass
    except Exception as error:  # noqa: BLE001  # the top of the program
        print_error(f"{sentence(error)}. Next: {NEXT_STEP}")
    sys.exit(1)


def run(invocation: Invocation) -> int:
    """Run a command in this process, or replace the process by Spark's."""
    options = invocation.spark
    if options is None:
        return invocation.command.run(invocation.arguments)
    if options.print_only:
        words = spark.command(invocation.command.file, invocation.arguments, options, spark.home(os.environ))
        print(shlex.join(words))
        return 0
    if invocation.command.engine is Engine.SESSION:
        spark.prepare(invocation.arguments, options)
        return invocation.command.run(invocation.arguments)
    spark.run(invocation.command.file, invocation.arguments, options)
    return 1


def print_error(text: str) -> None:
    """Print an error message to standard error."""
    print(f"{PROGRAM}: {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
