"""A requirements file names distributions, and nothing else; what it says does not depend on the order of its lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from agent.errors import InputError, UsageError
from agent.sandbox.dependencies.contradictions import contradiction
from agent.sandbox.dependencies.requirements import merged
from agent.sandbox.dependencies.requirements_file import read_requirements


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


def test_lines_of_one_distribution_add_up(tmp_path: Path) -> None:
    assert read(tmp_path, "a[x]>1\nA<3\na[y]\n") == ("a[x,y]<3,>1",)


def test_other_files_of_the_folder_are_included_once(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text("a\n-r b.txt\n")
    (tmp_path / "more" / "b.txt").write_text("b\n--requirement=a.txt\n")
    assert read(tmp_path, "-r more/a.txt\n-rmore/b.txt\nc\n") == ("a", "b", "c")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--index-url https://x.example", "is an option"),
        ("-e .", "is an option"),
        ("-c limits.txt", "is an option"),
        ("--hash=sha256:0", "is an option"),
        ("a @ https://x.example/a.whl", "is a URL or a path"),
        ("https://x.example/a.whl", "is a URL or a path"),
        ("git+ssh://x.example/a", "is a URL or a path"),
        ("./a", "is a URL or a path"),
        ("../a-1.0-py3-none-any.whl", "is a URL or a path"),
        ("a-1.0-py3-none-any.whl", "no requirement|names a file"),
        ("a --hash=sha256:0", "no requirement"),
        ("a b", "no requirement"),
        ("a===1", "write '=='"),
        ("json", "part of Python"),
        ("-r ../outside.txt", "outside the folder"),
        ("-r /etc/passwd", "outside the folder"),
        ("-r https://x.example/r.txt", "outside the folder"),
        ("-r gone.txt", "is no file"),
    ],
)
def test_anything_else_is_refused_with_its_place(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path.parent / "outside.txt").write_text("a\n")
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, f"fine\n# comment\n\\\n{line}\n")
    assert str(caught.value).startswith(f"{tmp_path / 'requirements.txt'}:3: ")


def test_a_link_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path.parent / "outside.txt").write_text("a\n")
    (tmp_path / "inside.txt").symlink_to("../outside.txt")
    with pytest.raises(InputError, match="outside the folder"):
        read(tmp_path, "-r inside.txt\n")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone.txt: cannot be read"):
        read_requirements(tmp_path / "gone.txt")
    with pytest.raises(InputError, match="not UTF-8"):
        read(tmp_path, b"\xff")


@pytest.mark.parametrize(
    "lines",
    [
        ("numpy<2", "NumPy>=2"),
        ("a==1", "a==2"),
        ("a==1.*", "a>=2"),
        ("a>1", "a<=1"),
        ("a~=1.4", "a>=2"),
        ("a>=1", "a<2", "a!=1.*"),
        ('a<2; python_version > "3"', "a>=2"),
    ],
)
def test_a_contradiction_is_found_before_the_run(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=r"requirements.txt: .* and .*: no version meets"):
        read(tmp_path, "\n".join(lines))


@pytest.mark.parametrize(
    "lines",
    [
        ("a<2", "a>=1.9"),
        ("a>1", "a<1.1"),
        ("a>1", "a<1.0.1"),
        ("a!=1.*", "a>=1"),
        ("a!=0", "a<1"),
        ("a==1.0+cpu", "a==1.0"),
        ("a==2.0rc1", "a>1.9"),
        ("a==1!1.0", "a>5"),
        ('a<2; python_version < "3"', 'a>=2; python_version >= "3"'),
        ("a<2", "b>=2"),
    ],
)
def test_what_some_version_meets_is_no_contradiction(lines: tuple[str, ...]) -> None:
    assert contradiction(map(Requirement, lines)) is None


VERSIONS = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(lambda parts: ".".join(map(str, parts)))
SPECIFIERS = st.builds("{}{}".format, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), VERSIONS)
REQUIREMENTS = st.builds(
    lambda name, extras, specifiers, marker: Requirement(
        f"{name}{'[' + ','.join(extras) + ']' if extras else ''}{','.join(specifiers)}{marker}"
    ),
    st.sampled_from(["a", "A", "b-c", "B_C", "d"]),
    st.lists(st.sampled_from(["x", "y"]), max_size=2),
    st.lists(SPECIFIERS, max_size=3),
    st.sampled_from(["", "; python_version < '3.10'", "; sys_platform == 'linux'"]),
)


@given(st.lists(REQUIREMENTS, max_size=6), st.randoms())
def test_merging_does_not_depend_on_the_order(requirements: list[Requirement], random: object) -> None:
    shuffled = list(requirements)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert merged(shuffled) == merged(requirements)


@given(st.lists(REQUIREMENTS, max_size=6))
def test_merging_twice_changes_nothing(requirements: list[Requirement]) -> None:
    once = merged(requirements)
    assert merged(map(Requirement, once)) == once
    assert merged([*map(Requirement, once), *requirements]) == once


@given(st.lists(st.lists(SPECIFIERS, max_size=2), min_size=1, max_size=4), VERSIONS)
def test_a_merged_requirement_admits_what_each_admits(each: list[list[str]], version: str) -> None:
    [text] = merged(Requirement(f"a{','.join(specifiers)}") for specifiers in each)
    admitted = all(SpecifierSet(",".join(specifiers)).contains(version) for specifiers in each)
    assert Requirement(text).specifier.contains(version) == admitted


@given(st.lists(SPECIFIERS, min_size=1, max_size=4), VERSIONS)
def test_no_contradiction_is_claimed_where_a_version_fits(specifiers: list[str], version: str) -> None:
    if SpecifierSet(",".join(specifiers)).contains(Version(version), prereleases=True):
        assert contradiction([Requirement(f"a{specifier}") for specifier in specifiers]) is None


@given(st.lists(REQUIREMENTS.map(str), max_size=5), st.sampled_from(["\n", "\r\n"]))
def test_a_file_of_requirements_is_what_they_merge_to(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ending: str
) -> None:
    requirements = [Requirement(line) for line in lines]
    folder = tmp_path_factory.mktemp("files")
    if contradiction(requirements) is None:
        assert read(folder, ending.join(lines)) == merged(requirements)
    else:
        with pytest.raises(UsageError):
            read(folder, ending.join(lines))
