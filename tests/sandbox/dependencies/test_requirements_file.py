"""A requirements file may contain only requirements and includes."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import InputError
from agent.sandbox.dependencies.requirements import read_requirements


def read(folder: Path, text: str | bytes) -> tuple[str, ...]:
    path = folder / "requirements.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_requirements(path)


def test_names_versions_markers_comments_and_continuation_lines_are_parsed(tmp_path: Path) -> None:
    text = """
        # the usual
        NumPy>=1.20, <2   # not 2
        requests[socks]
        attrs \\
            >=20
        tomli; python_version < "3.11"
    """
    assert read(tmp_path, text) == (
        "attrs>=20",
        "numpy<2,>=1.20",
        "requests[socks]",
        'tomli; python_version < "3.11"',
    )
    assert read(tmp_path, b"\xef\xbb\xbfnumpy\r\nattrs\r\n") == ("attrs", "numpy")
    assert read(tmp_path, "# nothing\n") == ()


def test_included_files_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text("a\n-r b.txt\n")
    (tmp_path / "more" / "b.txt").write_text("b\n--requirement=a.txt\n")
    assert read(tmp_path, "-r more/a.txt\n-rmore/b.txt\nc\n") == ("a", "b", "c")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("--index-url https://x.example", "--index-url"),
        ("-e .", "-e \\."),
        ("a @ https://x.example/a.whl", "x.example"),
        ("../a-1.0-py3-none-any.whl", "a-1.0"),
        ("a-1.0-py3-none-any.whl", "a-1.0"),
        ("a --hash=sha256:0", "--hash"),
        ("a===1", "'=='"),
        ("json", "Python"),
        ("-r https://x.example/r.txt", "file"),
        ("-r gone.txt", "gone.txt"),
    ],
)
def test_other_lines_are_rejected_with_their_location(tmp_path: Path, line: str, word: str) -> None:
    with pytest.raises(InputError, match=word) as caught:
        read(tmp_path, f"fine\n# comment\n\\\n{line}\n")
    assert str(caught.value).startswith(f"{tmp_path / 'requirements.txt'}:3: ")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.txt: "):
        read_requirements(tmp_path / "gone.txt")
    with pytest.raises(InputError, match=r"requirements\.txt: .*UTF-8"):
        read(tmp_path, b"\xff")
