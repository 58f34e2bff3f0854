"""Install what the services need: `python -m simulators.services` finds or installs Java and fills the cache of jars.

`python -m simulators.services programs` installs the programs that only tests need; `programs chromium` also that one
of the heavy tests, `programs heavy` all of these, and their jars.
"""

import sys
from collections.abc import Sequence

from simulators.services.error import ServiceError
from simulators.services.install import jars, java, programs


def main() -> int:
    """Install the requested programs, and print where they are."""
    if sys.argv[1:2] == ["programs"]:
        _install_programs(sys.argv[2:])
        return 0
    try:
        print(f"java: {java.install()}")
        for of in (jars.BROKER, jars.SPARK):
            found = jars.paths(of)
            print(f"jars: {of}: {len(found)} in {found[0].parent.parent}")
    except ServiceError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


def _install_programs(more: Sequence[str]) -> None:
    """Install the programs of tests; where that is not permitted, print the command and continue."""
    heavy = list(more) == ["heavy"]
    names = programs.HEAVY_PACKAGES if heavy else more
    try:
        jars.paths(jars.TLC)
        programs.install({**programs.PACKAGES, **{name: programs.HEAVY_PACKAGES[name] for name in names}})
        if heavy:
            for of in (
                jars.S3,
                jars.S3A,
                jars.BROKER_3_9,
                jars.ARTEMIS,
                jars.CALIFORNIUM,
                jars.CONNECT,
                jars.FLINK,
                jars.STREAMS,
                jars.JDBC,
                jars.REST_CATALOG,
            ):
                jars.paths(of)
    except ServiceError as error:
        print(f"setup: some tests cannot run: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
