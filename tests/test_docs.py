"""Runs every command and every Python block of README and docs in the order of the page."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.pipeline.graph import load_variant, render_mermaid
from agent.runs.store.run_view import load_run
from agent.runs.store.samples import read_sample
from tests.corpus.test_audit import make_group
from tests.datasets.benchmarks.published import write_all
from tests.evaluation.runs import add_reviews, annotate, write_lines, write_run
from tests.llm.server import Answer, ChatServer, Request, says
from tests.retrieval.searchers.tiny_models import publish, save_roberta, save_sentence_transformer
from tests.sandbox.wheelhouse import make_wheel

ROOT = Path(__file__).parent.parent
PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))}
README = PAGES["README.md"]
SERVER = "https://llm.example.org/v1"
INSTALLERS = ("uv", "pipx", "pip")
GUARANTEES = "guarantees.md"
CODEBERT = "microsoft/codebert-base"
DEMO = "agent annotate examples/pairs.jsonl --model replay:examples/replies.jsonl -o runs/demo --timeout 5"
MINE = f"agent annotate pairs.jsonl --model MODEL --base-url {SERVER} -o runs/mine"
PARTS = {
    f"runs/{n}": MINE.replace("pairs.jsonl", f).replace("mine", n)
    for n, f in (("one", "pairs.jsonl"), ("two", "more/a.jsonl"))
}
RUNS = {"runs/demo": DEMO, "runs/mine": MINE, **PARTS}
"""Run folders that pages mention, and the commands that create them if the page does not."""
BEGINNINGS = {
    "agent replay runs/demo dedupe-order": "replayed    1 of 1 execution\nsame        1\n",
    "agent replay runs/demo": "replayed    12 of 12 executions",
}
"""Expected start of the output of some commands."""


def find_blocks(page: str, language: str) -> list[str]:
    """Return the fenced blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)


def find_commands(page: str) -> list[str]:
    """Return the commands of a page in order."""
    return re.findall(r"^\$ (.*)$", "".join(find_blocks(page, "console")), re.MULTILINE)


def choose_marks(page: str, command: str = "python") -> list[pytest.MarkDecorator]:
    """Return the markers for a command of a page. Only commands of the README run every time."""
    marks = [pytest.mark.bwrap] if page == "README.md" else [pytest.mark.bwrap, pytest.mark.long]
    if "runs/demo" in command:
        marks.append(pytest.mark.network)
    if any(word in command for word in ("hf:", "model:", "agent train")):
        marks.append(pytest.mark.embed)
    if "chunk" in command:
        marks.append(pytest.mark.node)
    if command == "agent doctor":
        marks.append(pytest.mark.long)
    if command.split()[0] in INSTALLERS:
        marks += [pytest.mark.long, pytest.mark.network]
    return marks


RUN = [
    pytest.param(page, command, id=f"{page}: {command}", marks=choose_marks(page, command))
    for page in PAGES
    for command in dict.fromkeys(find_commands(page))
    if command.split()[0] not in ("export", *INSTALLERS)
]
INSTALL = list(
    dict.fromkeys(command for page in PAGES for command in find_commands(page) if command.split()[0] in INSTALLERS)
)
BASH = [
    pytest.param(page, block, id=f"{page}: loop {number}", marks=choose_marks(page, block))
    for page in PAGES
    for number, block in enumerate(find_blocks(page, "bash"), start=1)
]
PYTHON = [
    pytest.param(page, code, id=f"{page}: block {number}", marks=choose_marks(page))
    for page in PAGES
    for number, code in enumerate(find_blocks(page, "python"), start=1)
]


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    """A server whose model labels every pair a match, prefers second snippets, and embeds the lengths of texts."""
    reply = json.dumps({"reason": "adds", "verdict": "match", "intent": "yes", "label": 1, "better": "second"})

    def respond(request: Request) -> Answer:
        if not request.path.endswith("/embeddings"):
            return says(reply, prompt_tokens=3000)
        data = [{"index": index, "embedding": [1.0, len(text)]} for index, text in enumerate(request.body["input"])]
        return Answer(json.dumps({"data": data, "usage": {"prompt_tokens": 3}}).encode())

    with ChatServer(respond) as server:
        yield server


@pytest.fixture(scope="module")
def folder_of(commands: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that returns the working folder for the commands of a page."""
    folders: dict[str, Path] = {}

    def get_folder(page: str) -> Path:
        if page not in folders:
            folders[page] = tmp_path_factory.mktemp(page.removesuffix(".md"))
            fill(folders[page])
            if page == GUARANTEES:
                write_run(folders[page] / "runs/mine", (annotate(f"p{n}", n % 2, "passed") for n in range(200)))
            (folders[page] / "bin").symlink_to(commands)
        return folders[page]

    return get_folder


def fill(folder: Path) -> None:
    """Write the files that pages assume: examples, pairs, labels, a program, requirements and benchmarks."""
    write_all(folder)
    (folder / "requirements.txt").write_text("tinything>=1  # the reader's own\n")
    (folder / "wheels").mkdir()
    make_wheel(folder / "wheels", "tinything")
    (folder / "examples").symlink_to(ROOT / "examples")
    ids = [str(number) for number in range(1, 9)]
    pairs = [{"id": n, "query": f"add {n}", "code": f"def add{n}(x):\n    return x + {n}\n"} for n in ids]
    write_lines(folder / "pairs.jsonl", pairs)
    with (folder / "pairs.csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, ["id", "query", "code"])
        rows.writeheader()
        rows.writerows(pairs)
    for name, start in {"labelled": 0, "cosqa": 0, "cosqa-plus": 100, "csn-python": 200}.items():
        words = [hashlib.sha256(str(number).encode()).hexdigest()[:16] for number in range(start, start + 40)]
        labelled = [
            {"query": f"count {word}", "code": f"def {word}(x):\n    return x.count({word!r})\n"} for word in words
        ]
        write_lines(folder / f"{name}.jsonl", [{**pair, "label": int(n % 4 > 0)} for n, pair in enumerate(labelled)])
    write_lines(folder / "mutants.jsonl", make_mutants(40))
    write_lines(folder / "search.jsonl", ({"query": w, "code": f"{w} = 1"} for w in words))
    group = make_group("g1", *(f"def add{n}(x):\n    return x + {n}\n" for n in (1, 2)))
    write_lines(folder / "groups.jsonl", [group.model_dump()])
    for name in ("original", "relabelled"):
        codes = [{"query": pair["query"], "code": f"{pair['code']}# {name}\n", "label": 1} for pair in pairs]
        write_lines(folder / f"{name}.jsonl", codes)
    write_lines(folder / "questions.jsonl", [{"question": pair["query"], "answer": pair["code"]} for pair in pairs])
    for name in ("more/a.jsonl", "my-dataset/data/train.jsonl"):
        write_lines(folder / name, [{**pair, "id": f"{name} {pair['id']}"} for pair in pairs])
    (folder / "my-dataset" / "README.md").write_text("# Pairs\n")
    write_lines(folder / "gold.jsonl", [{"id": n, "label": int(n) % 2} for n in ids])
    (folder / "gold.csv").write_text("id,label\n" + "".join(f"{n},{int(n) % 2}\n" for n in ids))
    write_lines(folder / "people.jsonl", [{"id": n, "label": 0} for n in ids])
    write_lines(folder / "votes.jsonl", [{"id": n, "votes": [1, 0, 1]} for n in ids])
    (folder / "mine.trec").write_text("".join(f"q{n} Q0 c{n} 1 2.5 mine\n" for n in ids))
    blocks = [block for kind in ("javascript", "json", "sql", "py") for block in find_blocks("languages.md", kind)]
    for name, block in zip(
        ("chunk.js", "chunk.test.js", "chunk.jsonl", "second.sql", "second_test.py"), blocks, strict=True
    ):
        (folder / name).write_text(block)
    (folder / "snippet.py").write_text("def double(x):\n    return 2 * x\n")
    (folder / "program.py").write_text("# <candidate>\n\n\ndef test_double():\n    assert double(2) == 4\n")


def make_mutants(count: int) -> Iterator[dict[str, Any]]:
    """Make functions with a mutant each, like `agent corpus mutate`."""
    record = {"kind": "swapped_call", "change": "line 2: `count` became `find`", "check": "inputs"}
    for number in range(count):
        word = f"f{hashlib.sha256(f'mutant {number}'.encode()).hexdigest()[:16]}"
        row = {"query": f"count {word}", "code": f"def {word}(x):\n    return x.count({word!r})"}
        yield {"id": word, **row, "label": 1}
        wrong = row["code"].replace("count", "find")
        yield {"id": f"{word}-1", **row, "code": wrong, "label": 0, "mutant": {"of": word, **record}}


PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a reader: this interpreter's programs and bubblewrap, but no Docker engine."""
    return {
        **os.environ,
        "PATH": f"{folder}/bin{os.pathsep}{PATH}",
        "DOCKER_HOST": f"unix://{folder}/no-engine",
        "OPENAI_API_KEY": "sk-test",
        "PIP_FIND_LINKS": str(folder / "wheels"),
        "HF_HUB_CACHE": str(folder / "hub"),
        "HF_HUB_OFFLINE": "1",
        "NO_COLOR": "1",
    }


def run(command: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in bash. Fail if any part of it fails."""
    # the last line keeps bash running, so that completion can detect the shell
    script = f"set -eo pipefail\n{command}\n:"
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env={**environment(folder), **more}, capture_output=True, text=True
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
    return done


def run_until_interrupted(command: str, folder: Path) -> None:
    """Run a command that serves a page, interrupt it after it prints the address, and check its exit code."""
    with subprocess.Popen(
        shlex.split(command), cwd=folder, env=environment(folder), stdout=subprocess.PIPE, text=True
    ) as serving:
        assert serving.stdout.readline().startswith("http://127.0.0.1:")
        serving.send_signal(signal.SIGINT)
        serving.stdout.read()
    assert serving.returncode == 0


def remove_durations(story: str) -> str:
    """Remove the durations of executions from a story."""
    return re.sub(r", [\d.]+ s$", "", story, flags=re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "command"), [*RUN, *BASH])
def test_each_command_runs(
    page: str, command: str, folder_of: Callable[[str], Path], server: ChatServer, open_folder: Path
) -> None:
    folder = folder_of(page)

    def fill_in(text: str) -> str:
        for placeholder, value in ((SERVER, server.url), ("/srv/words", str(open_folder))):
            text = text.replace(placeholder, value)
        return re.sub(r"\bMODEL\b", "gpt-4o-mini", text)

    for name, creation in RUNS.items():
        if name in command and command.split()[1] != "annotate" and not (folder / name).exists():
            run(fill_in(creation), folder)
    for name in re.findall(r"hf:(models/\S+)", command):
        (save_roberta if "--pooling" in command else save_sentence_transformer)(folder / name)
    if CODEBERT in command and not (folder / "hub").exists():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "hub"))
            owner, _, name = CODEBERT.partition("/")
            publish(save_roberta(folder / "models" / name), owner)
    if command.startswith("make "):
        assert re.search(rf"^{command.split()[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif command.startswith(("agent review ", "agent prefer ")) and "--model" not in command:
        run_until_interrupted(command, folder)
        if page == GUARANTEES and (sample := read_sample(folder / "runs/mine/review_sample.json")):
            labels = {pair_id: int(pair_id[1:]) % 2 for pair_id in sample.shuffle_ids()}
            add_reviews(folder / "runs/mine", "ana", labels)
        if "--queries" in command:
            reviewed = folder / command.split()[2]
            with load_run(reviewed) as view:
                add_reviews(reviewed, "reader", {pair.id: 1 for pair in view.pairs()})
    else:
        # completion detects the shell that starts the command, which must be the real one
        done = run(fill_in(command), folder, **({"HOME": str(folder), "PATH": PATH} if "completion" in command else {}))
        assert done.stdout.startswith(BEGINNINGS.get(command, ""))
        assert done.stdout
        if "--json" in command:
            json.loads(done.stdout)


@pytest.mark.parametrize(("page", "code"), PYTHON)
def test_a_python_block_runs_as_pasted(page: str, code: str, folder_of: Callable[[str], Path]) -> None:
    folder = folder_of(page)
    (folder / "pasted.py").write_text(code)
    printed = run("python pasted.py", folder).stdout
    assert printed.startswith("1 1 " if page == "README.md" else "")
    assert printed


def test_the_printed_costs_match_the_page() -> None:
    block = find_blocks("costs.md", "python")[0]
    printed = run(f"python -c {shlex.quote(block)}", ROOT).stdout
    assert printed == find_blocks("costs.md", "text")[0]
    table = re.findall(r"^\| `.*", PAGES["costs.md"].replace(",", ""), re.MULTILINE)
    for row in table:
        *parts, total, _ = (int(number) for number in re.findall(r"\d+", row.split("|", 3)[3]))
        assert sum(parts) == total
        assert f", {total:_}, " in block
    assert len(table) == 4


@pytest.mark.bwrap
@pytest.mark.network
def test_the_quick_start_prints_the_documented_output(folder_of: Callable[[str], Path]) -> None:
    folder = folder_of("README.md")
    assert DEMO in find_commands("README.md")
    table, story = find_blocks("README.md", "text")[:2]
    printed = {" ".join(line.split()) for line in run(DEMO, folder).stdout.splitlines()}
    shown = [" ".join(line.split()) for line in table.splitlines() if line.strip() not in ("", "...")]
    assert [line for line in shown if line not in printed] == []
    printed_story = run("agent show runs/demo dedupe-order", folder).stdout
    assert remove_durations(printed_story).rstrip().endswith(f"\n\n{remove_durations(story).rstrip()}")


def test_make_demo_ends_with_the_line_that_puts_agent_on_the_path(tmp_path: Path) -> None:
    recipe = subprocess.run(
        ["make", "--no-print-directory", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    printed = run(recipe.splitlines()[-1], tmp_path).stdout
    assert printed.splitlines()[-1].strip() == f'export PATH="{ROOT}/.venv/bin:$PATH"'


def test_the_drawing_of_the_full_variant_matches_the_pipeline() -> None:
    assert find_blocks("variants.md", "mermaid") == [render_mermaid(load_variant("full"))]


def test_commands_whose_output_is_compared_are_in_the_docs() -> None:
    assert {DEMO, *BEGINNINGS} <= {command for page in PAGES for command in find_commands(page)}


def test_the_readme_has_at_most_200_lines() -> None:
    assert len(README.splitlines()) <= 200


def test_the_readme_links_to_every_page() -> None:
    assert {name for name in PAGES if f"(docs/{name})" not in README} == {"README.md"}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_existing_files_and_headings(page: str) -> None:
    folder = ROOT if page == "README.md" else ROOT / "docs"
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", PAGES[page]):
        path = folder / target if target else folder / page
        assert path.is_file(), target
        assert not anchor or anchor in find_anchors(path), f"{target}#{anchor}"


def find_anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub generates for a page's headings."""
    lines = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in lines}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package's wheel, used instead of a package index."""
    folder = tmp_path_factory.mktemp("index")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    return folder


@pytest.mark.long
@pytest.mark.network
@pytest.mark.parametrize("command", INSTALL)
def test_an_installation_puts_the_command_on_the_path(command: str, wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "own")], check=True)
    places = {
        "PATH": f"{tmp_path}/own/bin{os.pathsep}{tmp_path}/bin{os.pathsep}{environment(tmp_path)['PATH']}",
        "UV_TOOL_DIR": str(tmp_path / "tools"),
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
        "PIP_FIND_LINKS": str(wheel),
        "UV_FIND_LINKS": str(wheel),
    }
    installation = command.replace("pipx ", "uv tool run pipx ") if command.startswith("pipx ") else command
    run(f"cd {shlex.quote(str(ROOT))} && {installation}", tmp_path, **places)
    output = run("command -v agent && agent --version && agent graph", tmp_path, **places).stdout
    assert output.startswith(str(tmp_path))
