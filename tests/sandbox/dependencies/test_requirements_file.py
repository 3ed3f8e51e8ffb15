"""A requirements file names distributions, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import InputError
from agent.sandbox.dependencies.requirements import read_requirements


def read(folder: Path, text: str | bytes) -> tuple[str, ...]:
    path = folder / "requirements.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_requirements(path)


def test_names_versions_markers_comments_and_continued_lines_are_read(tmp_path: Path) -> None:
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


def test_other_files_of_the_folder_are_included_once(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text("a\n-r b.txt\n")
    (tmp_path / "more" / "b.txt").write_text("b\n--requirement=a.txt\n")
    assert read(tmp_path, "-r more/a.txt\n-rmore/b.txt\nc\n") == ("a", "b", "c")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--index-url https://x.example", "no requirement"),
        ("-e .", "no requirement"),
        ("a @ https://x.example/a.whl", "no requirement"),
        ("../a-1.0-py3-none-any.whl", "no requirement"),
        ("a-1.0-py3-none-any.whl", "no requirement"),
        ("a --hash=sha256:0", "no requirement"),
        ("a===1", "write '=='"),
        ("json", "part of Python"),
        ("-r https://x.example/r.txt", "is no file"),
        ("-r gone.txt", "is no file"),
    ],
)
def test_anything_else_is_refused_with_its_place(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, f"fine\n# comment\n\\\n{line}\n")
    assert str(caught.value).startswith(f"{tmp_path / 'requirements.txt'}:3: ")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone.txt: cannot be read"):
        read_requirements(tmp_path / "gone.txt")
    with pytest.raises(InputError, match="not UTF-8"):
        read(tmp_path, b"\xff")
