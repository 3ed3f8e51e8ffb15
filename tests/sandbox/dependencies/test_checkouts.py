"""Files of a commit are exported from clones that the user has, whatever the clones and the pairs contain."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.errors import DependencyUnavailable, UsageError
from agent.sandbox.dependencies import checkouts as module
from agent.sandbox.dependencies.checkouts import Checkouts, is_checkout, normalise_repository
from agent.types import Origin
from tests.sandbox.dependencies.repositories import commit_files, make_clone, run_git, write_object

DISC = "shapes/round/disc.py"
PACKAGE = {"shapes/__init__.py": "", "shapes/round/__init__.py": "", DISC: "AREA = 3\n"}
NAMES = [
    "Owner/Name", "https://github.com/Owner/name.git", "https://user@example.org:80/group/owner/name/", "owner/name\n",
    "git@github.com:owner/name.git", "ssh://git@example.org/owner/name", "github.com/owner/name",
]  # fmt: skip
UNSAFE = ("..", ".", ".git", ".GIT", "../../x.py", "/x.py", "a/b.py", "n" * 256)


def make_origin(commit: str, path: str | None = DISC, **fields: str | None) -> Origin:
    return Origin(**{"repository": "owner/name", "commit": commit, "name": "area", "path": path, **fields})  # type: ignore[arg-type]


def export(clone: Path, commit: str, root: str = "", wheel: str = "wheel.py") -> dict[str, str]:
    """Export a checkout to a new folder that contains the empty file `wheel`, and return its files."""
    into = clone.parents[2] / "exported"
    (into / wheel).parent.mkdir(parents=True)
    (into / wheel).touch()
    Checkouts(clone.parents[1]).export(f"owner/name=={commit}{root}", into)
    return {str(path.relative_to(into)): path.read_text() for path in into.rglob("*") if path.is_file()}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of `owner/name` with the files of `PACKAGE`."""
    make_clone(tmp_path / "clones" / "owner" / "name", PACKAGE)
    return tmp_path / "clones" / "owner" / "name"


def find_object(clone: Path, name: str) -> Path:
    """Return the file of a loose object."""
    key = run_git(clone, "rev-parse", name)
    return clone / ".git" / "objects" / key[:2] / key[2:]


def test_names_and_urls_of_a_repository_are_equal() -> None:
    assert {normalise_repository(name) for name in NAMES} == {"owner/name"}
    assert not any(map(normalise_repository, ("numpy", "--upload-pack=x", "ext::sh -c id", "owner/na\0me", "")))


@pytest.mark.parametrize(
    ("place", "url"),
    [("owner/name", ""), ("owner__name", ""), ("github.com/owner/name", ""), ("any", NAMES[1]), (".", NAMES[4])],
)
def test_a_clone_is_found_by_its_path_or_its_remote(tmp_path: Path, place: str, url: str) -> None:
    commit = make_clone(tmp_path / "clones" / place, PACKAGE, url=url)
    checkout = Checkouts(tmp_path / "clones").find(make_origin(commit, repository="https://github.com/OWNER/name"))
    assert checkout is not None
    assert (checkout.requirement, checkout.module) == (f"owner/name=={commit}", "shapes.round.disc")
    assert is_checkout(checkout.requirement)


def test_a_bare_clone_with_packed_objects_is_found(tmp_path: Path) -> None:
    commit = make_clone(tmp_path / "source", PACKAGE)
    run_git(tmp_path, "clone", "-q", "--bare", "--no-local", "source", "clones/owner/name.git")
    assert export(tmp_path / "clones/owner/name", commit).items() >= PACKAGE.items()


def test_every_clone_of_a_repository_is_searched(tmp_path: Path) -> None:
    for name in "ab":
        make_clone(tmp_path / "clones" / name, {**PACKAGE, "name.py": name}, url="https://example.org/owner/name")
    clones = Checkouts(tmp_path / "clones")
    first, last = clones._clones["owner/name"]
    commit = run_git(last, "rev-parse", "HEAD")
    for _readable in (True, False):
        assert clones.find(make_origin(commit)) is not None
        (first / "objects" / "info" / "alternates").touch()


@pytest.mark.parametrize(
    ("files", "path", "named", "root", "found"),
    [
        (["top.py"], "top.py", None, "", "top"),
        (["src/shop/__init__.py", "src/shop/cart.py"], "src/shop/cart.py", None, ":src", "shop.cart"),
        (["src/shop/__init__.py", "src/shop/cart.py"], "shop/cart.py", None, ":src", "shop.cart"),
        (["src/shop/__init__.py", "src/shop/cart.py"], None, "shop.cart", ":src", "shop.cart"),
        (["shop/__init__.py"], "shop/__init__.py", None, "", "shop"),
        (["shop/__init__.py"], None, "shop", "", "shop"),
        (["a/b/shop/cart.py"], "a/b/shop/cart.py", None, ":a/b/shop", "cart"),
        (["a/b/shop/cart.py"], "a/b/shop/cart.py", "shop.cart", ":a/b", "shop.cart"),
        (["__init__.py", "cart.py"], "cart.py", None, "", "cart"),
    ],
)
def test_the_import_path_follows_the_packages(
    clone: Path, files: list[str], path: str | None, named: str | None, root: str, found: str
) -> None:
    commit = commit_files(clone, dict.fromkeys(files, ""))
    checkout = Checkouts(clone.parents[1]).find(make_origin(commit, path, module=named))
    assert checkout is not None
    assert (checkout.requirement, checkout.module) == (f"owner/name=={commit}{root}", found)
    stem = found.replace(".", "/")
    assert {f"{stem}.py", f"{stem}/__init__.py"} & export(clone, commit, root).keys()


@pytest.mark.parametrize("commit", ["HEAD", "master", "refs/heads/master", "--batch-all-objects", "1.0", "abc1234", ""])
def test_only_a_full_commit_id_names_a_checkout(clone: Path, commit: str) -> None:
    assert Checkouts(clone.parents[1]).find(make_origin(commit)) is None
    assert not is_checkout(f"owner/name=={commit}")


def test_what_no_clone_contains_has_a_reason(clone: Path) -> None:
    (clone / "link.py").symlink_to(DISC)
    commit = commit_files(clone, {"read-me.py": ""})
    run_git(clone, "tag", "-a", "v1", "-m", "v1")
    others = [run_git(clone, "rev-parse", name) for name in ("HEAD^{tree}", "v1")]
    paths = [f"../{DISC}", "/etc/passwd", "shapes", "read-me.py", "link.py", f"{DISC}/x.py"]
    origins = [
        *(make_origin(commit, repository=text) for text in ("../../etc", "other/name", "/owner/name/../..", "")),
        *(make_origin(commit, path) for path in paths),
        *(make_origin(key) for key in ("0" * 40, *others)),
    ]
    for origin in origins:
        with pytest.raises(DependencyUnavailable):
            Checkouts(clone.parents[1]).find(origin)


@pytest.mark.parametrize(
    ("wheel", "present"),
    [
        ("shapes/old.py", False),  # modules of the same name are replaced
        ("shapes.py/old.py", False),
        ("shapes", False),
        ("data/old.txt", True),  # folders without modules are merged
        ("data", None),
        ("data/words.txt/old.txt", None),
    ],
)
def test_files_of_a_wheel_are_replaced_by_modules_or_are_a_reason(
    clone: Path, wheel: str, present: bool | None
) -> None:
    commit = commit_files(clone, {"data/words.txt": ""})
    if present is not None:
        assert (wheel in export(clone, commit, wheel=wheel)) == present
        return
    with pytest.raises(DependencyUnavailable, match="data"):
        export(clone, commit, wheel=wheel)


def test_a_clone_runs_nothing_and_replaces_nothing(clone: Path) -> None:
    (clone / "secret").symlink_to("/etc/passwd")
    (clone / "outside").symlink_to("../..")
    run_git(clone, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    canary = clone.parents[2] / "canary"
    texts = {
        ".gitattributes": "*.py filter=evil diff=evil text eol=crlf ident\n",
        ".gitmodules": f'[submodule "module"]\n\tpath = module\n\turl = ext::sh -c touch% {canary}\n',
    }
    commit = commit_files(clone, texts)
    run_git(clone, "replace", run_git(clone, "rev-parse", f"HEAD:{DISC}"), write_object(clone, b"AREA = 4\n"))
    for key in ("fsmonitor", "sshCommand", "pager"):
        run_git(clone, "config", f"core.{key}", f"touch {canary}")
    for key in ("filter.evil.smudge", "diff.evil.textconv", "core.hooksPath", "core.worktree", "include.path"):
        run_git(clone, "config", key, "hooks" if key.startswith(("core", "include")) else f"touch {canary}")
    for name in ("post-checkout", "reference-transaction", "post-index-change", "fsmonitor-watchman"):
        (clone / ".git" / "hooks" / name).write_text(f"#!/bin/sh\ntouch {canary}\n")
        (clone / ".git" / "hooks" / name).chmod(0o755)
    (clone / ".git" / "info" / "grafts").write_text(f"{commit}\n")
    (clone / ".git" / "config").open("a").write(f"[alias]\n\tcat-file = !touch {canary}\n[extensions]\n\tnone = 1\n")
    canary.unlink(missing_ok=True)  # of the commands above
    assert export(clone, commit) == {**PACKAGE, **texts, "wheel.py": ""}
    assert not canary.exists()


def _remove_object(clone: Path) -> None:
    """Make a partial clone, which git would complete with a command."""
    find_object(clone, f"HEAD:{DISC}").unlink()
    url = f"ext::sh -c touch% {clone.parents[2] / 'canary'}"
    for key, value in {"url": url, "promisor": "true", "partialclonefilter": "blob:none"}.items():
        run_git(clone, "config", f"remote.origin.{key}", value)
    run_git(clone, "config", "protocol.ext.allow", "always")


def _change_object(clone: Path) -> None:
    path = find_object(clone, f"HEAD:{DISC}")
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"blob 9\0AREA = 4\n"))


def _replace_object_by_pipe(clone: Path) -> None:
    path = find_object(clone, "HEAD")
    path.unlink()
    os.mkfifo(path)


def _borrow_objects(clone: Path) -> None:
    objects = clone / ".git" / "objects"
    objects.rename(clone.parents[2] / "objects")
    (objects / "info").mkdir(parents=True)
    (objects / "info" / "alternates").write_text(f"{clone.parents[2]}/objects\n")


def _link_objects(clone: Path) -> None:
    run_git(clone, "repack", "-qad")
    pack = clone / ".git" / "objects" / "pack"
    pack.rename(clone.parents[2] / "pack")
    pack.symlink_to(clone.parents[2] / "pack")


def _commit_tree(clone: Path, *names: str) -> None:
    """Commit a tree of empty files, whose names git does not check."""
    key = bytes.fromhex(write_object(clone, b""))
    tree = write_object(clone, b"".join(f"100644 {name}".encode() + b"\0" + key for name in names), "tree")
    run_git(clone, "update-ref", "HEAD", run_git(clone, "commit-tree", tree, "-m", "tree"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_remove_object, "blob"),
        (_change_object, "damaged"),
        (_replace_object_by_pipe, "commit"),
        (_borrow_objects, "borrows"),
        (_link_objects, "borrows"),
        (lambda clone: commit_files(clone, {"data.bin": b"x" * 4096}), "larger"),
        (lambda clone: _commit_tree(clone, *map(str, range(51))), "50 files"),
        *((lambda clone, name=name: _commit_tree(clone, "a.py", name), "unsafe") for name in UNSAFE),
        *((lambda clone, name=name: _commit_tree(clone, "a.py", name), "case") for name in ("a.py", "A.py")),
    ],
)
def test_a_damaged_large_or_unsafe_clone_is_a_reason(
    clone: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], reason: str
) -> None:
    monkeypatch.setattr(module, "_SECONDS", 0.5)
    monkeypatch.setattr(module, "MAX_BYTES", 4096)
    monkeypatch.setattr(module, "MAX_ENTRIES", 50)
    change(clone)
    with pytest.raises(DependencyUnavailable, match=reason):
        export(clone, run_git(clone, "rev-parse", "HEAD"))
    assert not (clone.parents[2] / "canary").exists()


def test_linked_clones_are_not_followed_and_git_is_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_clone(tmp_path / "elsewhere", PACKAGE)
    clones = tmp_path / "clones"
    for name in ("file", "link"):
        (clones / name).mkdir(parents=True)
    (clones / "name").symlink_to(tmp_path / "elsewhere")
    (clones / "file" / ".git").write_text(f"gitdir: {tmp_path / 'elsewhere' / '.git'}\n")
    (clones / "link" / ".git").symlink_to(tmp_path / "elsewhere" / ".git")
    with pytest.raises(UsageError, match="checkouts"):
        Checkouts(clones)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="git"):
        Checkouts(tmp_path)
