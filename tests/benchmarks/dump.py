"""Measures `agent corpus stackexchange` on a made-up dump: peak memory, and megabytes and posts per second.

Exits with 1 if the peak memory exceeds 200 MB.
"""

# Avoids large imports, because a process inherits the peak memory of its parent.
from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from xml.sax.saxutils import quoteattr

_MAX_MEGABYTES = 200
_LANGUAGES = "c,c++,java,python,ruby,lisp,javascript,c#,go,rust,php"
_TAGS = [*_LANGUAGES.split(","), *["html", "sql", "css"] * 5]
_WORDS = [f"{start}{end}" for start in ("val", "list", "str", "key", "fun") for end in ("ue", "s", "ing", "ed", "or")]


def write_dump(path: Path, size: int) -> int:
    """Write a dump of at least `size` bytes, and return the number of posts. Half of the questions accept an answer."""
    rng, number = Random(0), 0
    with path.open("w", encoding="utf-8") as file:
        file.write('<?xml version="1.0" encoding="utf-8"?>\n<posts>\n')
        while file.tell() < size:
            question, answers = number + 1, rng.choice((0, 1, 2, 2))
            accepts = answers > 0 and rng.random() < 0.65
            accepted = f'AcceptedAnswerId="{question + rng.randint(1, answers)}" ' if accepts else ""
            tags = "".join(f"&lt;{tag}&gt;" for tag in rng.sample(_TAGS, 2))
            file.write(_make_row(rng, question, f'PostTypeId="1" {accepted}Title="{_make_text(rng, 8)}" Tags="{tags}"'))
            for answer in range(question + 1, question + 1 + answers):
                file.write(_make_row(rng, answer, f'PostTypeId="2" ParentId="{question}"'))
            number += 1 + answers
        file.write("</posts>\n")
    return number


def _make_row(rng: Random, number: int, rest: str) -> str:
    code = "".join(f"    if ({word} &lt; 10 &amp;&amp; {word}) {{ return 1; }}\n" for word in rng.choices(_WORDS, k=10))
    texts = [f"<p>{_make_text(rng, 40)} <code>{rng.choice(_WORDS)}</code></p>\n\n" for _ in range(3)]
    body = quoteattr(f"{texts[0]}<pre><code>{code}</code></pre>\n\n{texts[1]}{texts[2]}")
    date = f"20{8 + number // 10**6:02}-{1 + number // 30_000 % 12:02}-{1 + number // 2000 % 28:02}T12:00:00.000"
    values = f'CreationDate="{date}" Score="{number % 90}" Body={body} OwnerUserId="{number % 10**5}"'
    return f'  <row Id="{number}" {rest} {values} ContentLicense="CC BY-SA 4.0" />\n'


def _make_text(rng: Random, words: int) -> str:
    return f"{' '.join(rng.choices(_WORDS, k=words))} {rng.random()}."


def main() -> None:
    """Parse the command line, measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.dump", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000, help="Size of the dump.")
    size = parser.parse_args().megabytes * 10**6
    with tempfile.TemporaryDirectory() as folder:
        posts = write_dump(Path(folder, "Posts.xml"), size)
        options = f"corpus stackexchange {folder}/Posts.xml -o {folder}/out --json"
        done = subprocess.run([sys.executable, "-m", "agent", *options.split()], stdout=subprocess.PIPE, check=True)
    document, usage = json.loads(done.stdout), resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024  # KB on Linux
    assert document["posts"] == posts
    triples = sum(sum(parts.values()) for parts in document["triples"].values())
    print(f"{size / 1e6:,.0f} MB, {posts:,} posts, {triples:,} triples: {seconds:.0f} s CPU")
    print(f"{size / 1e6 / seconds:.1f} MB and {posts / seconds:,.0f} posts per s CPU, {peak:.0f} MB peak memory")
    sys.exit(peak > _MAX_MEGABYTES)


if __name__ == "__main__":
    main()
