"""Each key is found on its line, regardless of the surrounding text."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from agent.config.toml_lines import line_at, lines_of

TEXT = """# a comment with [brackets] and = signs
title = "x" # [no table]
[gateway]
id = "gw1"
"quoted key" = 1
text = \"\"\"
[not.a.table]
id = 2
\"\"\"
list = [
  "a]", # ] = [
  "b",
]
[kafka.properties]
"linger.ms" = 5
sasl.mechanism = 'PLAIN=['
inline = { a = 1, b = [1, 2] }

[[mqtt.subscriptions]]
topic = "a"
[[mqtt.subscriptions]]
topic = "b"
"""


def test_every_key_has_its_line() -> None:
    tomllib.loads(TEXT)
    lines = lines_of(TEXT)
    assert lines == {
        ("title",): 2,
        ("gateway",): 3,
        ("gateway", "id"): 4,
        ("gateway", "quoted key"): 5,
        ("gateway", "text"): 6,
        ("gateway", "list"): 10,
        ("kafka", "properties"): 14,
        ("kafka", "properties", "linger.ms"): 15,
        ("kafka", "properties", "sasl"): 16,
        ("kafka", "properties", "sasl", "mechanism"): 16,
        ("kafka", "properties", "inline"): 17,
        ("mqtt", "subscriptions"): 19,
        ("mqtt", "subscriptions", "topic"): 20,
    }
    assert line_at(lines, ("kafka", "properties", "inline", "b")) == 17
    assert line_at(lines, ("store", "max_bytes")) is None


VALUES = st.sampled_from(
    ["1", '"a # [b] = c"', "'{'", '"""\nx = 1\n[y]\n"""', "[\n1, # ]\n2\n]", "{ a = 1 }", "'''\n'''", "true # ["]
)
NOISE = st.lists(st.sampled_from(["", "# c = 1", "  ", "# [t]"]), max_size=2)


@given(st.lists(st.tuples(NOISE, VALUES), min_size=1, max_size=8))
def test_lines_are_those_at_which_the_keys_were_written(entries: list[tuple[list[str], str]]) -> None:
    text, expected = "[section]\n", {}
    for number, (noise, value) in enumerate(entries):
        text += "".join(f"{line}\n" for line in noise)
        expected[f"key{number}"] = text.count("\n") + 1
        text += f"key{number} = {value}\n"
    assert set(tomllib.loads(text)["section"]) == set(expected)
    found = lines_of(text)
    assert {key: found["section", key] for key in expected} == expected
