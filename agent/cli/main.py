"""The command line of the gateway: `oncegate run`, and the commands that inspect its configuration and its store."""

import errno
import os
import sqlite3
import sys

from agent.cli import commands
from agent.cli.failures import FAILURE, USAGE, CommandError, print_error
from agent.coap.errors import CredentialsError
from agent.config.mistakes import ConfigurationError
from agent.forward.errors import KafkaSettingsError
from agent.http.address import HttpSettingsError
from agent.store.errors import StoreError, is_damage

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def main() -> None:
    """Run the command and exit: 0 success, 1 a failure, 2 wrong usage or configuration."""
    try:
        arguments = commands.parse(sys.argv[1:])
        status = arguments.run(arguments)
        sys.stdout.flush()
        sys.exit(status)
    except (ConfigurationError, HttpSettingsError, KafkaSettingsError, CredentialsError) as error:
        print_error(str(error))
        sys.exit(USAGE)
    except CommandError as error:
        print_error(str(error))
        sys.exit(error.code)
    except (StoreError, sqlite3.Error) as error:
        hint = "; the store is damaged: see oncegate verify" if is_damage(error, opening=True) else ""
        print_error(f"{error}{hint}")
    except PermissionError as error:
        print_error(f"{error.filename}: {error.strerror}; run it as root, or as the user that the agent runs as")
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        _abandon_output()
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        _abandon_output()
        print_error(f"the output cannot be written: {error.strerror}")
    sys.exit(FAILURE)


def _abandon_output() -> None:
    """Discard what is left of the output, which the interpreter would write at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
