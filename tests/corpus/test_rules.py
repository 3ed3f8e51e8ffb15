"""Rules remove queries by whole words, gaps and substrings. Broken rules files are rejected."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.corpus.queries import find_rule, load_rules
from agent.errors import ConfigError

COSQA = load_rules("cosqa")
WORDS = ["how", "do", "does", "work", "works", "ide", "turn", "on", "side", "more"]
KEYWORDS = ["how do … work", "how … works", "turn … on", "ide", "do more", "… side", "how … do … on"]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("python how do generators really work?", "how do … work"),
        ("turning lights off with python", "turning … off"),
        ("python try/except", "try … except"),
        ("python can't open file", "can't"),
        ("python couldn’t open file", "couldn't"),
        ("call C# from python", "c#"),
        ("python call f()", "()"),
        ("python " + "how do " * 20_000, None),
    ],
)
def test_the_rules_of_the_paper_decide(query: str, text: str | None) -> None:
    rule = find_rule(COSQA, query)
    assert (rule and rule.text) == text


def test_the_rules_are_those_of_the_paper() -> None:
    assert Counter(rule.category for rule in COSQA) == {
        "required": 1, "Debugging": 9, "Conceptual": 37, "Programming Knowledge": 18, "Tools Usage": 32, "Others": 11
    }  # fmt: skip


def contains_words(query: list[str], keyword: list[str]) -> bool:
    """Whether a query starts with the words of a keyword, in which … is zero or more words."""
    if keyword[:1] == ["…"]:
        return any(contains_words(query[start:], keyword[1:]) for start in range(len(query) + 1))
    return not keyword or (query[:1] == keyword[:1] and contains_words(query[1:], keyword[1:]))


@given(query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=9), keyword=st.sampled_from(KEYWORDS))
def test_a_keyword_matches_like_a_comparison_of_words(
    query: list[str], keyword: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "rules.yaml"
    path.write_text(f"keywords: {{words: ['{keyword}']}}", "utf-8")
    rule = find_rule(load_rules(str(path)), " ".join(query).title())
    assert (rule is not None) == contains_words(query, ["…", *keyword.split()])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("keywords: {a: [x}", 1),
        ("name: x\nkeywords:\n  a: [x]\n  a: [y]", 4),
        ("!!python/object/apply:os.getcwd []", 1),
        *((text, None) for text in ("keyword: {a: [x]}", "keywords: {a: [on]}", "keywords: {a: x}", "requires: ['']")),
        *((text, None) for text in ("requires: [2020-99-99]", "[" * 5000, "")),
    ],
)
def test_a_broken_rules_file_is_rejected_with_its_line(tmp_path: Path, text: str, line: int | None) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_rules(str(path))
    assert str(caught.value).startswith(f"{path}: " if line is None else f"{path}:{line}: ")
