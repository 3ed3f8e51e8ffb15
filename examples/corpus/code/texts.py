# SPDX-License-Identifier: Apache-2.0
"""Functions on strings."""

import re
from collections.abc import Sequence


def is_palindrome(text: str) -> bool:
    """Check whether a string is a palindrome.

    >>> is_palindrome("level")
    True
    >>> is_palindrome("list")
    False
    """
    return text == text[::-1]


def count_words(text: str) -> int:
    """Count the words in a string.

    >>> count_words("to be or not")
    4
    """
    return len(re.findall(r"\w+", text))


def common_prefix(strings: Sequence[str]) -> str:
    """Return the longest common prefix of strings.

    >>> common_prefix(["flower", "flow", "flight"])
    'fl'
    """
    shortest = min(strings, key=len, default="")
    for index, letter in enumerate(shortest):
        if any(string[index] != letter for string in strings):
            return shortest[:index]
    return shortest


class Title:
    """Title case for strings, with small words in lower case."""

    small = frozenset({"a", "an", "and", "of", "the"})

    @classmethod
    def convert(cls, text: str) -> str:
        """Title case a string.

        >>> Title.convert("the lord of the rings")
        'The Lord of the Rings'
        """
        words = [word if word in cls.small else word.capitalize() for word in text.split()]
        return " ".join([word.capitalize() for word in words[:1]] + words[1:])

    def print_example(self) -> None:
        print(self.convert("a tale of two cities"))
