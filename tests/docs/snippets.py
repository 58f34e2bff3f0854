"""The shell commands of the documents: in blocks, in indented lines, and between backticks in the text."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import PAGES, blocks, name

OURS = ("oncegate", "oncegate-sim", "oncegate-cloud")
_INLINE = re.compile(rf"`((?:sudo )?(?:{'|'.join(sorted(OURS, key=len, reverse=True))}) [^`]+)`")
_INDENTED = re.compile(rf"^ {{4}}((?:echo .* \| )?(?:sudo )?(?:{'|'.join(OURS)}) .+)$", re.MULTILINE)
_PREFIXES = ("sudo", "exec", "$")
_ENDS = ("|", "&&", ";", "||", "&", "(", ")", "<(")
_REDIRECTIONS = ("<", ">", ">>")
PAGES_READ = tuple(page for page in PAGES if "decisions" not in page.parts and page.name != "CHANGELOG.md")


@dataclass(frozen=True, slots=True)
class Snippet:
    """One program with its arguments, as a page has it."""

    page: str
    words: tuple[str, ...]
    mentioned: bool = False
    """Whether it stands within a sentence, where arguments may be left out."""

    @property
    def program(self) -> str:
        """The name of the program, without its folder."""
        return Path(self.words[0]).name

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def snippets() -> Iterator[Snippet]:
    for page in PAGES_READ:
        text = page.read_text()
        lines = [line for block in blocks_of(page) for line in block.replace("\\\n", " ").splitlines()]
        for line in [*lines, *_INDENTED.findall(text)]:
            yield from (Snippet(name(page), words) for words in programs(line))
        for line in _INLINE.findall(text):
            yield from (Snippet(name(page), words, mentioned=True) for words in programs(line))


def blocks_of(page: Path) -> list[str]:
    """Return the shell blocks of a page, those within lists included."""
    nested = re.findall(r"^ +```sh\n(.*?)^ +```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [*blocks(page, "sh"), *nested]


def programs(line: str) -> Iterator[tuple[str, ...]]:
    """Yield each program of a line with its arguments; variables that are set before it belong to neither."""
    lexer = shlex.shlex(line.replace("$acls", "kafka-acls.sh"), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    before = ""
    for word in [*lexer, ";"]:
        is_file, before = before in _REDIRECTIONS, word
        if is_file or word in _REDIRECTIONS:
            continue
        if word in _ENDS:
            while words and (words[0] in _PREFIXES or re.match(r"\w+=", words[0])):
                words.pop(0)
            if words:
                yield tuple(words)
            words = []
        else:
            words.append(word)
