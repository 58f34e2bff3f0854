"""Write manual pages and completion scripts: `python -m agent.cli.manual PAGES BASH ZSH`, a folder and two files.

The build of a package for another processor runs this, so that nothing but Python's own library is imported.
"""

from __future__ import annotations

import sys
from pathlib import Path

from agent.cli.manual import bash, zsh
from agent.cli.manual.pages import pages


def main() -> None:
    """Write the files."""
    folder, bash_file, zsh_file = map(Path, sys.argv[1:])
    written = {folder / name: text for name, text in pages().items()}
    for file, text in {**written, bash_file: bash.script(), zsh_file: zsh.script()}.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o644)


if __name__ == "__main__":
    main()
