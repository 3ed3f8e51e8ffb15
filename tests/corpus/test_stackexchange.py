"""Triples from posts: what is kept, counted and split, in whatever order the posts come."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.corpus.split import PARTS
from agent.corpus.stackexchange import MAX_HTML_CHARACTERS, DumpSummary, TripleTable
from agent.datasets.benchmarks.building import BenchmarkRow
from agent.errors import InputError
from tests.exports.runs import read_lines

TEXT = "<p>A text that is long enough.</p>"
START = datetime(2020, 1, 1, 12)
Post = dict[str, Any]


def question(number: int, answer: int | None, tags: str = "<python>", **more: Any) -> Post:
    """Return a question that is posted on day `number`."""
    accepted = {} if answer is None else {"AcceptedAnswerId": answer}
    return make_post(number, 1, **{"Title": f"Title {number}", "Tags": tags, **accepted, **more})


def answer(number: int, parent: int, **more: Any) -> Post:
    return make_post(number, 2, ParentId=parent, **more)


def make_post(number: int, kind: int, **more: Any) -> Post:
    date = (START + timedelta(days=number)).isoformat(timespec="milliseconds")
    post = {"Id": number, "PostTypeId": kind, "CreationDate": date, "Score": -2, "Body": TEXT, "OwnerUserId": 7, **more}
    return {name: str(value) for name, value in post.items() if value is not None}


def convert(*posts: Post) -> tuple[dict[str, list[dict[str, Any]]], DumpSummary]:
    """Return the rows of the parts for training, validation and test, and the summary."""
    table = TripleTable(["python", "c"], "stackoverflow.com")
    table.add_posts(BenchmarkRow(post, Path("Posts.xml"), line) for line, post in enumerate(posts, start=3))
    with TemporaryDirectory() as folder:
        summary = table.write(Path(folder), lambda *_: None)
        return {part: read_lines(Path(folder, f"{part}.jsonl")) for part in PARTS}, summary


POSTS = [
    *(question(1, 2), answer(2, 1), question(3, 5), answer(4, 3), answer(5, 3), question(6, None), answer(7, 6)),
    *(question(8, 9, "<html>"), answer(9, 8), question(10, 11), answer(11, 10, Body="short"), answer(12, 99)),
    *(question(13, 14), answer(14, 13)),
]
"""Triples with the ids 1, 3 and 13, three questions without a triple, and an answer to a deleted question."""
WRONG: list[Post] = [{"PostTypeId": None}, {"Id": "9" * 30}, {"AcceptedAnswerId": "x"}, {"CreationDate": "then"}]
WRONG += [{"Id": "٣"}, {"Title": None}, {"Score": "1.5"}]


def test_a_triple_has_texts_ids_dates_scores_authors_and_licences() -> None:
    body = "<p>How do I <code>sort</code> a list?</p>"
    asked = question(4, 9, "<lists><python>", Title=" Sort it ", Body=body, ContentLicense="CC BY-SA 2.5")
    owner = {"OwnerUserId": None, "OwnerDisplayName": "anna", "ContentLicense": "CC BY-SA 4.0", "Score": 3}
    answered = answer(9, 4, Body="<pre><code>values.sort()\n# in place\n</code></pre>", **owner)
    parts, summary = convert(asked, answered)
    assert parts["test"] == [{
        "id": "4", "query": "Sort it\nHow do I sort a list?", "code": "values.sort()\n# in place", "label": 1,
        "language": "python", "question": "Sort it", "description": "How do I sort a list?",
        "tags": ["lists", "python"], "created": "2020-01-05T12:00:00.000+00:00", "score": -2,
        "author": "https://stackoverflow.com/users/7", "url": "https://stackoverflow.com/q/4",
        "licence": "CC BY-SA 2.5", "answer_id": "9", "answer_created": "2020-01-10T12:00:00.000+00:00",
        "answer_score": 3, "answer_author": "anna", "answer_url": "https://stackoverflow.com/a/9",
        "answer_licence": "CC BY-SA 4.0",
    }]  # fmt: skip
    assert summary.licences == {"CC BY-SA 2.5": 1, "CC BY-SA 4.0": 1}
    assert (summary.posts, summary.questions, summary.answers) == (2, 1, 1)


class TestLanguages:
    @pytest.mark.parametrize("tags", ["<arrays><c><python>", "|arrays|c|python|"])
    def test_a_question_belongs_to_the_first_of_its_languages(self, tags: str) -> None:
        parts, summary = convert(question(1, 2, tags), answer(2, 1), question(3, 4, tags))
        assert [row["language"] for row in parts["test"]] == ["c"]
        assert (summary.several_languages, summary.triples["python"]["test"]) == (1, 0)

    @pytest.mark.parametrize("tags", ["<python-3.x>", "<c++>", "<PYTHON>", "", None])
    def test_a_tag_must_be_equal_to_a_language(self, tags: str | None) -> None:
        assert convert(question(1, 2, tags or "", Tags=tags), answer(2, 1))[1].removed == {"other tags": 1}


class TestRemoval:
    @pytest.mark.parametrize(("size", "reason"), [(19, "too short"), (20, ""), (4096, ""), (4097, "too long")])
    @pytest.mark.parametrize("name", ["description", "answer"])
    def test_bodies_but_not_titles_have_20_to_4096_characters_of_text(self, name: str, size: int, reason: str) -> None:
        body = {"Body": f"<p>{'<b>x</b>' * (size - 1)}&amp;</p>"}
        asked, answered = ({}, body) if name == "answer" else (body, {})
        _, summary = convert(question(1, 2, Title="x" * 5000, **asked), answer(2, 1, **answered))
        assert summary.removed == ({f"{name} is {reason}": 1} if reason else {})

    @pytest.mark.parametrize("html", ["<![foo", f"&#{'9' * 5000};", "<p>" * (MAX_HTML_CHARACTERS // 3)])
    def test_html_that_cannot_be_parsed_is_counted(self, html: str) -> None:
        posts = [question(1, 2, Body=html + TEXT), answer(2, 1), question(3, 4), answer(4, 3, Body=html + TEXT)]
        reason = "is too long" if html.startswith("<p>") else "has unreadable HTML"
        assert convert(*posts)[1].removed == {f"description {reason}": 1, f"answer {reason}": 1}

    def test_questions_without_an_accepted_answer_are_counted(self) -> None:
        posts = [question(1, None), answer(2, 1), question(3, 4), question(5, 2), question(6, 8), answer(7, 6)]
        assert convert(*posts)[1].removed == {"no accepted answer": 1, "accepted answer is not in the dump": 3}

    def test_answers_to_deleted_questions_are_counted(self) -> None:
        tag_wiki = {"Id": "x", "PostTypeId": "5"}
        _, summary = convert(answer(5, 99), answer(2, 98), question(1, 2), answer(2, 1), answer(4, 1), tag_wiki)
        assert (summary.orphans, summary.removed, summary.answers, summary.posts) == (2, {}, 4, 6)

    def test_the_first_post_with_an_id_counts(self) -> None:
        posts = [question(1, 2, Title="first"), question(1, 2, Title="second"), answer(2, 1, Score=1), answer(2, 1)]
        parts, summary = convert(*posts)
        assert [(row["question"], row["answer_score"]) for row in parts["test"]] == [("first", 1)]
        assert summary.removed == {"duplicate id": 1}

    @pytest.mark.parametrize("change", WRONG, ids=str)
    def test_a_malformed_attribute_is_an_error_with_the_line(self, change: Post) -> None:
        with pytest.raises(InputError, match=next(iter(change))) as error:
            convert(question(1, 2), answer(2, 1), question(3, 4, **change))
        assert (error.value.path, error.value.line) == ("Posts.xml", 5)


class TestParts:
    def test_each_language_is_split_by_date(self) -> None:
        order = Random(0).sample(range(1, 41), 40)
        posts = [question(n, n + 100, "<c>" if n > 20 else "<python>", CreationDate=f"{2060 - n}-01-01") for n in order]
        parts, summary = convert(*posts, *(answer(n + 100, n) for n in order))
        ids = [str(n) for n in range(40, 0, -1)]
        expected = [ids[20:36] + ids[:16], ids[36:38] + ids[16:18], ids[38:] + ids[18:20]]
        assert [[row["id"] for row in rows] for rows in parts.values()] == expected
        assert summary.triples["c"] == {"train": 16, "validation": 2, "test": 2}

    @given(count=st.integers(1, 60))
    @settings(max_examples=15)
    def test_the_parts_have_80_10_and_10_percent(self, count: int) -> None:
        posts = [post for n in range(1, count + 1) for post in (question(n, n + 100), answer(n + 100, n))]
        sizes = convert(*posts)[1].triples["python"]
        test = max(round(count / 10), 1)
        assert (sizes["test"], sizes["validation"], sum(sizes.values())) == (test, min(test, count - 1), count)

    @given(posts=st.permutations(POSTS))
    @settings(max_examples=25)
    def test_the_order_of_the_posts_does_not_matter(self, posts: list[Post]) -> None:
        parts, summary = convert(*posts)
        assert [[row["id"] for row in rows] for rows in parts.values()] == [["1"], ["3"], ["13"]]
        assert summary.removed == {"no accepted answer": 1, "other tags": 1, "answer is too short": 1}
        assert summary.orphans == 1
