"""Texts of licences: exact texts are recognised, and texts with other conditions are not."""

from __future__ import annotations

from importlib.metadata import files
from pathlib import Path

import pytest

from agent.corpus.licences import recognise_licence

MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
"""
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
        "MIT",
        HEADER,
        f"{HEADER}{MIT}The Software shall be used for Good, not Evil.\n",
        f"{MIT}\n{MIT}",
        MIT.replace(", sublicense", ""),
        f"For non-commercial use only.\n{MIT}",
        f"Copyright (c) 2020 Ann. No commercial use.\n{MIT}",
        f'"Commons Clause" License Condition v1.0\n\nThe Software is provided under the License.\n\n{MIT}',
        "All rights reserved.",
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
    path = next(path for path in files(distribution) or () if path.name == name and ".dist-info" in str(path))
    assert recognise_licence(Path(str(path.locate())).read_text(encoding="utf-8")) == licence


@pytest.mark.parametrize(
    "part",
    ["copyright ", "(c)", "license\n", "\n", " \n", "\n- ", "neither the name of ", "additional liability copyright "],
)
def test_long_hostile_texts_stay_unknown(part: str) -> None:
    assert recognise_licence(part * (260_000 // len(part))) is None  # a pattern that backtracks would take hours
