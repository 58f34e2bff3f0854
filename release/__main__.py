"""Build a release of the last commit: `python -m release`; `make release` calls it."""

import argparse
import sys
import tempfile
from pathlib import Path

from release import changelog, checksums, steps
from release.errors import ReleaseError

DEBIAN = ("12", "13")


def main() -> int:
    """Build, print the files, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the files go; default: dist/VERSION; must be empty")
    parser.add_argument("--tag", help="require that the version is this tag's, and that the changelog has its date")
    parser.add_argument("--sign", type=Path, metavar="KEY", help="sign the checksums with this key of OpenSSH")
    parser.add_argument("--debian", nargs="*", default=DEBIAN, choices=DEBIAN, help="releases of Debian")
    parser.add_argument(
        "--architectures", nargs="*", default=steps.MACHINES, choices=steps.MACHINES, help="of packages"
    )
    try:
        release(parser.parse_args())
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def release(options: argparse.Namespace) -> None:
    """Build everything in a temporary folder, from an export of the last commit."""
    with tempfile.TemporaryDirectory(prefix="oncegate-release-") as work:
        dist = Path(work) / "dist"
        dist.mkdir()
        build = steps.export(Path(work), dist)
        section = changelog.section_of((build.source / "CHANGELOG.md").read_text(), build.version)
        if options.tag:
            changelog.check_tag(section, options.tag)
        folder = (options.folder or steps.ROOT / "dist" / build.version).resolve()
        if folder.exists() and any(folder.iterdir()):
            raise ReleaseError(f"{folder} is not empty; remove it, or name another: make release DIST=/path")
        if steps.uncommitted():
            print("release: uncommitted changes are not part of it", file=sys.stderr)

        wheel = steps.build_python(build)
        steps.build_all_debian(build, options.debian, options.architectures)
        for name in steps.BILLS:
            steps.describe(build, wheel, name)
        (dist / f"oncegate-{build.version}-notes.md").write_text(section.body)
        checksums.write(dist)
        if options.sign:
            checksums.sign(dist, options.sign.resolve())

        folder.mkdir(parents=True, exist_ok=True)
        for file in sorted(dist.iterdir()):
            (folder / file.name).write_bytes(file.read_bytes())
            print(folder / file.name)


if __name__ == "__main__":
    sys.exit(main())
