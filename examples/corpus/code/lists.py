# SPDX-License-Identifier: Apache-2.0
"""Functions on lists."""

from typing import Any


def reverse_list(items: list[Any]) -> list[Any]:
    """Reverse a list.

    >>> reverse_list([1, 2, 3])
    [3, 2, 1]
    """
    return items[::-1]


def flatten(items: list[Any]) -> list[Any]:
    """Flatten a nested list.

    >>> flatten([1, [2, [3, 4]]])
    [1, 2, 3, 4]
    """
    flat: list[Any] = []
    for item in items:
        flat.extend(flatten(item) if isinstance(item, list) else [item])
    return flat


def remove_duplicates(items: list[Any]) -> list[Any]:
    """Remove duplicates from a list and keep the order.

    >>> remove_duplicates([3, 1, 3, 2, 1])
    [3, 1, 2]
    """
    return list(dict.fromkeys(items))


def sort_unique(items: list[Any]) -> list[Any]:
    """Remove duplicates from a list and sort the rest.

    >>> sort_unique([3, 1, 3, 2])
    [1, 2, 3]
    """
    return sorted(set(items))


def split_into_chunks(items: list[Any], size: int) -> list[list[Any]]:
    """Split a list into chunks of the given size.

    >>> split_into_chunks([1, 2, 3, 4, 5], 2)
    [[1, 2], [3, 4], [5]]
    """
    return [items[start : start + size] for start in range(0, len(items), size)]
