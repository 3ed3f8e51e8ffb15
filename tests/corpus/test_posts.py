"""Reading Posts.xml: rows, HTML, and files that are damaged, hostile or not a dump."""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.corpus.stackexchange import MAX_ROW_BYTES, extract_text, read_posts
from agent.datasets.benchmarks.building import BenchmarkRow
from agent.errors import InputError

START = b'<?xml version="1.0" encoding="utf-8"?>\n<posts>\n'
ROW = b'<row Id="1" Body="a&amp;b" />\n'
END = b"</posts>\n"


def read(folder: Path, content: bytes, name: str = "Posts.xml") -> list[BenchmarkRow]:
    (folder / name).write_bytes(content)
    return list(read_posts(folder / name, lambda *_: None))


def test_attributes_are_fields_and_errors_name_the_line(tmp_path: Path) -> None:
    first, second = read(tmp_path, START + ROW + '<row Id="2" Body="é&#xA;&lt;p&gt;"/>'.encode() + END)
    assert (first.fields, first.line) == ({"Id": "1", "Body": "a&b"}, 3)
    assert (second.fields, second.build_error("x").line) == ({"Id": "2", "Body": "é\n<p>"}, 4)


def test_rows_may_cross_chunks_and_progress_is_in_megabytes(tmp_path: Path) -> None:
    path, steps = tmp_path / "Posts.xml", list[Any]()
    rows = [b'<row Id="%d" Body="%s" />' % (number, b"x" * 1000 * number) for number in range(80)]
    path.write_bytes(START + b"\n".join(rows) + END)
    read_rows = list(read_posts(path, lambda *step: steps.append(step[1:])))
    assert [len(row.fields["Body"]) for row in read_rows] == [1000 * number for number in range(80)]
    assert (steps[0], steps[-1]) == ((0, 3), (3, 3))


def test_gzip_files_and_declared_encodings_are_decoded(tmp_path: Path) -> None:
    content = START.replace(b"utf-8", b"windows-1252") + b'<row Body="\x80" />' + END
    assert read(tmp_path, gzip.compress(content), "Posts.xml.gz")[0].fields == {"Body": "€"}


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=50))
def test_any_text_is_read_unchanged(text: str) -> None:
    with TemporaryDirectory() as folder:
        (row,) = read(Path(folder), START + f"<row Body={quoteattr(text)} />".encode() + END)
    assert row.fields == {"Body": text}


@pytest.mark.parametrize("row", [b"", b'<row Id="2" Body="a', b'<row Id="2" Body="\xc3'])
def test_a_cut_file_is_an_error_with_the_line_after_its_complete_rows(tmp_path: Path, row: bytes) -> None:
    path = tmp_path / "Posts.xml"
    path.write_bytes(START + ROW + row)
    rows = read_posts(path, lambda *_: None)
    assert next(rows).fields["Id"] == "1"
    with pytest.raises(InputError, match="cut off") as error:
        next(rows)
    assert (error.value.line, error.value.path) == (4, str(path))


DOCTYPE = START.replace(b"<posts>", b"<!DOCTYPE posts%s>\n<posts>") + b'<row Body="&b;" />' + END
OTHERS = {
    "empty": (b"", 1),
    "entity": (START + b'<row Body="&b;" />' + END, 3),
    "invalid token": (START + b'<row Body="\x0e" />' + END, 3),
    "DOCTYPE": (DOCTYPE % b"", 2),
    "DOCTYPE with a file": (DOCTYPE % b' SYSTEM "file:///etc/passwd"', 2),
    "DOCTYPE with entities": (DOCTYPE % b' [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]', 2),
    "0xe9": (START + ROW + b'<row Body="caf\xe9" />' + END, 4),
    "0xff": (START + ROW + b'<row Body="\xff\xfea\x00" />' + END, 4),
    "multi-byte": (START.replace(b"utf-8", b"shift-jis") + ROW + END, 1),
    "nonsense": (START.replace(b"utf-8", b"nonsense") + ROW + END, 1),
    "incorrect": ((START + ROW + END).decode().encode("utf-16"), 1),
    "<users>": (b"<users>\n<row Id='1' />\n</users>", 1),
    "<row>": (START + b"<row><row /></row>" + END, 3),
    "<post>": (START + ROW + b"<post />" + END, 4),
    "7z": (b"7z\xbc\xaf\x27\x1c\x00\x04", None),
    "gzip": (gzip.compress(START + END), None),
    "bzip2": (b"BZh91AY&SY", None),
    "zip": (b"PK\x03\x04\x14", None),
    "XML": (b'{"Id": 1}', 1),
    "longer": (START + ROW + b'<row Body="' + b"x" * (MAX_ROW_BYTES + (1 << 19)), 4),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_file_is_an_error_with_the_cause_and_the_line(tmp_path: Path, name: str) -> None:
    content, line = OTHERS[name]
    with pytest.raises(InputError, match=name.split()[0]) as error:
        read(tmp_path, content)
    assert error.value.line == line
    with pytest.raises(InputError, match=r"Posts\.xml in"):
        next(read_posts(tmp_path, lambda *_: None))


TEXTS = {
    "<p>Use <code>a &lt; b</code>:</p>\n\n<pre><code>if x:\n    y()\n\n\n\nz()\n</code></pre>\n\n<p>Ok?": (
        "Use a < b:\nif x:\n    y()\n\n\n\nz()\n\nOk?"
    ),
    "one<br>two<br/>\nthree": "one\ntwo\nthree",
    "<p>one</p><p>two</p>": "one\ntwo",
    "<ul><li>one</li><li>two</li></ul><p>three": "one\ntwo\nthree",
    "<b>one</b>two <!-- hidden --><a href='x'>three</a>": "onetwo three",
    "a &lt;b&gt; &amp;amp; &nbsp;c": "a <b> &amp; \xa0c",
    "How do I run<pre>ls\n</pre>or<blockquote>dir</blockquote>?": "How do I run\nls\nor\ndir\n?",
    "<ul><li>one<ul><li>two</li></ul></li> <li><b>three</b> four": "one\ntwo\nthree four",
    "<pre><code>\n    def f():\n        pass\n</code></pre>\n": "    def f():\n        pass",
    "": "",
    "https://example.org/a": "https://example.org/a",
    "C:\\notes.txt": "C:\\notes.txt",
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("html", TEXTS)
def test_tags_are_removed_and_code_stays_in_its_place(html: str) -> None:
    assert extract_text(html) == TEXTS[html]


def test_the_time_is_proportional_to_the_number_of_tags() -> None:
    start = time.process_time()
    assert extract_text("<br>x" * 20_000).count("\n") == 19_999
    assert extract_text("<ul><li>" * 8000 + "x") == "x"
    assert time.process_time() - start < 20


@pytest.mark.parametrize("padding", [0, (1 << 18) - 67])
def test_references_to_forbidden_characters_are_dropped_and_counted(tmp_path: Path, padding: int) -> None:
    dropped, path = list[int](), tmp_path / "Posts.xml"
    body = b"x&#x0E;&#14;&#0;&#xD800;&#xffff;y&#xA;&#x09;&#10;&#233;&#x1F600;&amp;"
    path.write_bytes(START + b"<!--" + b"x" * padding + b'--><row Body="' + body + b'" />' + END)
    (row,) = read_posts(path, lambda *_: None, dropped.append)
    assert (row.fields["Body"], dropped) == ("xy\n\t\n\u00e9\U0001f600&", [5])
