"""Texts of licences: exact texts are recognised, and texts with other conditions are not."""

from __future__ import annotations

from importlib.metadata import files
from pathlib import Path

import pytest

from agent.corpus.provenance import recognise_licence


def read_licence(distribution: str, name: str) -> str:
    """Return the text of a licence of an installed distribution."""
    path = next(path for path in files(distribution) or () if path.name == name and ".dist-info" in str(path))
    return Path(str(path.locate())).read_text(encoding="utf-8")


MIT = read_licence("rich", "LICENSE").partition("\n\n")[2]  # without the line about the copyright
HEADER = "The MIT License (MIT)\n\nCopyright (c) 2020-2024 Ann Other <ann@example.org>\nAll rights reserved.\n\n"


@pytest.mark.parametrize(
    "text", [MIT, HEADER + MIT, f"# MIT License\n{MIT}", " ".join(MIT.split()), MIT.replace("\n", "\r\n").upper()]
)
def test_titles_copyright_lines_and_layout_do_not_matter(text: str) -> None:
    assert recognise_licence(text) == "MIT"


@pytest.mark.parametrize(
    "text",
    [
        "",
        HEADER,
        f"{HEADER}{MIT}The Software shall be used for Good, not Evil.\n",
        MIT.replace(", sublicense", ""),
        f"For non-commercial use only.\n{MIT}",
        f"Copyright (c) 2020 Ann. No commercial use.\n{MIT}",
        f'"Commons Clause" License Condition v1.0\n\nThe Software is provided under the License.\n\n{MIT}',
    ],
)
def test_a_text_with_other_conditions_stays_unknown(text: str) -> None:
    assert recognise_licence(text) is None


@pytest.mark.parametrize(
    ("distribution", "name", "licence"),
    [("packaging", "LICENSE.APACHE", "Apache-2.0"), ("packaging", "LICENSE.BSD", "BSD-2-Clause"),
     ("httpx", "LICENSE.md", "BSD-3-Clause"), ("openai", "LICENSE", "Apache-2.0"), ("rich", "LICENSE", "MIT")],
)  # fmt: skip
def test_texts_of_installed_distributions_are_recognised(distribution: str, name: str, licence: str) -> None:
    assert recognise_licence(read_licence(distribution, name)) == licence


@pytest.mark.parametrize(
    "part",
    ["copyright ", "(c)", "license\n", "\n", " \n", "\n- ", "neither the name of ", "additional liability copyright "],
)
def test_long_hostile_texts_stay_unknown(part: str) -> None:
    assert recognise_licence(part * (260_000 // len(part))) is None  # a pattern that backtracks would take hours
