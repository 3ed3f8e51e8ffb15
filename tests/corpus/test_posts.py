"""Reading Posts.xml: rows, HTML, and files that are damaged, hostile or not a dump."""

from __future__ import annotations

import gzip
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.corpus.posts import MAX_ROW_BYTES, extract_text, read_posts
from agent.datasets.benchmarks.building import BenchmarkRow
from agent.errors import InputError

START = b'<?xml version="1.0" encoding="utf-8"?>\n<posts>\n'
ROW = b'<row Id="1" Body="a&amp;b" />\n'
END = b"</posts>\n"


def read(folder: Path, content: bytes, name: str = "Posts.xml") -> list[BenchmarkRow]:
    (folder / name).write_bytes(content)
    return list(read_posts(folder / name, lambda *_: None))


class TestRows:
    def test_attributes_are_fields_and_errors_name_the_line(self, tmp_path: Path) -> None:
        first, second = read(tmp_path, START + ROW + '<row Id="2" Body="é&#xA;&lt;p&gt;"/>'.encode() + END)
        assert (dict(first.fields), first.line) == ({"Id": "1", "Body": "a&b"}, 3)
        assert (dict(second.fields), second.build_error("x").line) == ({"Id": "2", "Body": "é\n<p>"}, 4)

    def test_rows_may_cross_chunks(self, tmp_path: Path) -> None:
        rows = [b'<row Id="%d" Body="%s" />' % (number, b"x" * 1000 * number) for number in range(60)]
        read_rows = read(tmp_path, START + b"\n".join(rows) + END)
        assert [len(row.fields["Body"]) for row in read_rows] == [1000 * number for number in range(60)]

    def test_a_gzip_file_is_decompressed(self, tmp_path: Path) -> None:
        assert len(read(tmp_path, gzip.compress(START + ROW + END), "Posts.xml.gz")) == 1

    def test_progress_is_in_megabytes(self, tmp_path: Path) -> None:
        path, steps = tmp_path / "Posts.xml", list[Any]()
        path.write_bytes(START + b" " * 3_000_000 + END)
        assert list(read_posts(path, lambda *step: steps.append(step[1:]))) == []
        assert (steps[0], steps[-1]) == ((0, 2), (2, 2))

    def test_a_declared_encoding_is_used(self, tmp_path: Path) -> None:
        content = START.replace(b"utf-8", b"windows-1252") + b'<row Body="\x80" />' + END
        assert read(tmp_path, content)[0].fields == {"Body": "€"}

    @given(st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=50))
    def test_any_text_is_read_unchanged(self, text: str) -> None:
        with TemporaryDirectory() as folder:
            (row,) = read(Path(folder), START + f"<row Body={quoteattr(text)} />".encode() + END)
        assert row.fields == {"Body": text}


class TestDamage:
    @pytest.mark.parametrize(
        ("content", "line"),
        [
            (b"", 1),
            (START, 3),
            (START + ROW, 4),
            (START + ROW + b'<row Id="2" Body="a', 4),
            (START + ROW + b'<row Id="2" Body="\xc3', 4),
        ],
    )
    def test_a_cut_file_is_an_error_with_the_line(self, tmp_path: Path, content: bytes, line: int) -> None:
        with pytest.raises(InputError, match="cut off") as error:
            read(tmp_path, content)
        assert (error.value.line, error.value.path) == (line, str(tmp_path / "Posts.xml"))

    def test_the_rows_before_the_damage_are_read_first(self, tmp_path: Path) -> None:
        (tmp_path / "Posts.xml").write_bytes(START + ROW)
        rows = read_posts(tmp_path / "Posts.xml", lambda *_: None)
        assert next(rows).fields["Id"] == "1"
        with pytest.raises(InputError):
            next(rows)

    @pytest.mark.parametrize(
        ("content", "word"),
        [
            (START + ROW + b'<row Body="caf\xe9" />' + END, "0xe9"),
            (START + ROW + b'<row Body="\xff\xfea\x00" />' + END, "0xff"),
            (START.replace(b"utf-8", b"shift-jis") + ROW + END, "encoding"),
            (START.replace(b"utf-8", b"nonsense") + ROW + END, "encoding"),
            ((START + ROW + END).decode().encode("utf-16"), "encoding"),
        ],
    )
    def test_a_wrong_encoding_is_an_error_with_the_line(self, tmp_path: Path, content: bytes, word: str) -> None:
        with pytest.raises(InputError, match=word) as error:
            read(tmp_path, content)
        assert error.value.line == (4 if word.startswith("0x") else 1)

    def test_a_truncated_gzip_file_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(InputError):
            read(tmp_path, gzip.compress(START + ROW + END)[:-9], "Posts.xml.gz")


class TestHostileFiles:
    @pytest.mark.parametrize(
        "doctype",
        [
            b"<!DOCTYPE posts>",
            b'<!DOCTYPE posts SYSTEM "file:///etc/passwd">',
            b'<!DOCTYPE posts [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>',
        ],
    )
    def test_a_doctype_is_an_error(self, tmp_path: Path, doctype: bytes) -> None:
        lines = START.split(b"\n", 1)
        with pytest.raises(InputError, match="DOCTYPE") as error:
            read(tmp_path, lines[0] + b"\n" + doctype + b"\n" + lines[1] + b'<row Body="&b;" />' + END)
        assert error.value.line == 2

    @pytest.mark.parametrize("reference", [b"&b;", b"&#xd800;", b"&#0;"])
    def test_an_undefined_entity_is_an_error(self, tmp_path: Path, reference: bytes) -> None:
        with pytest.raises(InputError) as error:
            read(tmp_path, START + ROW + b'<row Body="' + reference + b'" />' + END)
        assert error.value.line == 4

    @pytest.mark.parametrize(
        ("content", "line"),
        [
            (b"<users>\n<row Id='1' />\n</users>", 1),
            (START + b"<row><row /></row>" + END, 3),
            (START + ROW + b"<post />" + END, 4),
            (b"7z\xbc\xaf\x27\x1c\x00\x04", None),
            (b'{"Id": 1}', 1),
        ],
    )
    def test_another_file_is_an_error(self, tmp_path: Path, content: bytes, line: int | None) -> None:
        with pytest.raises(InputError) as error:
            read(tmp_path, content)
        assert error.value.line == line

    def test_an_endless_row_is_an_error_before_it_fills_the_memory(self, tmp_path: Path) -> None:
        content = START + ROW + b'<row Body="' + b"x" * (MAX_ROW_BYTES + (1 << 19))
        with pytest.raises(InputError, match="4 MB") as error:
            read(tmp_path, content)
        assert error.value.line == 4

    def test_a_missing_file_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(InputError):
            list(read_posts(tmp_path / "none.xml", lambda *_: None))


class TestText:
    def test_code_stays_in_its_place_and_keeps_its_lines(self) -> None:
        html = "<p>Use <code>a &lt; b</code> here:</p>\n\n<pre><code>if x:\n    y()\n\n\n\nz()\n</code></pre>\n\n<p>Ok?"
        assert extract_text(html) == "Use a < b here:\nif x:\n    y()\n\n\n\nz()\n\nOk?"

    @pytest.mark.parametrize(
        ("html", "text"),
        [
            ("one<br>two<br/>\nthree", "one\ntwo\nthree"),
            ("<p>one</p><p>two</p>", "one\ntwo"),
            ("<ul><li>one</li><li>two</li></ul><p>three", "one\ntwo\nthree"),
            ("<b>one</b>two <!-- hidden --><a href='x'>three</a>", "onetwo three"),
            ("a &lt;b&gt; &amp;amp; &nbsp;c", "a <b> &amp; \xa0c"),
            ("", ""),
        ],
    )
    def test_tags_are_removed(self, html: str, text: str) -> None:
        assert extract_text(html) == text

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("text", ["https://example.org/a", "notes.txt", "C:\\notes.txt"])
    def test_an_address_is_a_text(self, text: str) -> None:
        assert extract_text(text) == text

    @given(st.text(max_size=60))
    def test_any_html_has_a_text_that_can_be_stored(self, html: str) -> None:
        text = extract_text(html)
        assert text == text.strip()
