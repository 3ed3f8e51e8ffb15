# SPDX-License-Identifier: Apache-2.0
"""Functions on dates and temperatures."""

from datetime import date


def celsius_to_fahrenheit(degrees: float) -> float:
    """Convert degrees Celsius to degrees Fahrenheit.

    >>> celsius_to_fahrenheit(100)
    212.0
    """
    return degrees * 9 / 5 + 32


def fahrenheit_to_celsius(degrees: float) -> float:
    """Convert degrees Fahrenheit to degrees Celsius.

    >>> fahrenheit_to_celsius(212)
    100.0
    """
    return (degrees - 32) * 5 / 9


def is_leap_year(year: int) -> bool:
    """Check whether a year is a leap year.

    >>> is_leap_year(2000)
    True
    >>> is_leap_year(1900)
    False
    """
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def days_between(first: date, second: date) -> int:
    """Return the number of days between two dates."""
    return abs((second - first).days)


def print_today() -> None:
    """Print the date of today."""
    print(date.today().isoformat())
