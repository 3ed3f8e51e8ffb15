"""Files of a commit are exported from clones that the user has, whatever the clones and the pairs contain."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.errors import DependencyUnavailable, UsageError
from agent.sandbox.dependencies import checkouts as module
from agent.sandbox.dependencies.checkouts import Checkouts, is_checkout, normalise_repository
from agent.types import Origin
from tests.sandbox.dependencies.repositories import (
    commit_files,
    commit_tree,
    make_clone,
    run_git,
    write_blob,
    write_tree,
)

PACKAGE = {"shapes/__init__.py": "", "shapes/round/__init__.py": "", "shapes/round/disc.py": "AREA = 3\n"}


def make_origin(commit: str, path: str | None = "shapes/round/disc.py", **fields: str) -> Origin:
    return Origin(**{"repository": "owner/name", "commit": commit, "name": "area", "path": path, **fields})  # type: ignore[arg-type]


def export(clones: Path, requirement: str) -> dict[str, str]:
    """Export a checkout to a new folder, and return its files."""
    into = clones.parent / "exported"
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    Checkouts(clones).export(requirement, into)
    return {str(path.relative_to(into)): path.read_text() for path in into.rglob("*") if path.is_file()}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of `owner/name`, which a test creates."""
    return tmp_path / "clones" / "owner" / "name"


NAMES = [
    "Owner/Name", "https://github.com/Owner/name.git", "https://user@example.org:80/group/owner/name/", "owner/name\n",
    "git@github.com:owner/name.git", "ssh://git@example.org/owner/name", "github.com/owner/name",
]  # fmt: skip


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


def test_a_bare_clone_with_packed_objects_is_found(clone: Path) -> None:
    commit = make_clone(clone.parents[2] / "source", PACKAGE)
    run_git(clone.parents[2], "clone", "-q", "--bare", "--no-local", "source", "clones/owner/name.git")
    assert export(clone.parents[1], f"owner/name=={commit}") == PACKAGE


def test_every_clone_of_a_repository_is_searched(tmp_path: Path) -> None:
    make_clone(tmp_path / "clones" / "a", {"old.py": ""}, url="https://example.org/owner/name")
    commit = make_clone(tmp_path / "clones" / "b", PACKAGE, url="https://example.org/owner/name")
    assert Checkouts(tmp_path / "clones").find(make_origin(commit)) is not None


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
    commit = make_clone(clone, dict.fromkeys(files, ""))
    origin = make_origin(commit, path).model_copy(update={"module": named})
    checkout = Checkouts(clone.parents[1]).find(origin)
    assert checkout is not None
    assert (checkout.requirement, checkout.module) == (f"owner/name=={commit}{root}", found)
    exported = export(clone.parents[1], checkout.requirement)
    stem = found.replace(".", "/")
    assert {f"{stem}.py", f"{stem}/__init__.py"} & exported.keys()


@pytest.mark.parametrize("commit", ["HEAD", "master", "refs/heads/master", "--batch-all-objects", "1.0", "abc1234", ""])
def test_only_a_full_commit_id_names_a_checkout(clone: Path, commit: str) -> None:
    make_clone(clone, PACKAGE)
    assert Checkouts(clone.parents[1]).find(make_origin(commit)) is None
    assert not is_checkout(f"owner/name=={commit}")


def test_what_no_clone_contains_has_a_reason(clone: Path) -> None:
    make_clone(clone, {**PACKAGE, "read-me.py": ""})
    (clone / "link.py").symlink_to("shapes/round/disc.py")
    commit = commit_files(clone, {})
    run_git(clone, "tag", "-a", "v1", "-m", "v1")
    others = [run_git(clone, "rev-parse", name) for name in ("HEAD^{tree}", "v1")]
    paths = ["../shapes/round/disc.py", "/etc/passwd", "shapes", "read-me.py", "link.py", "shapes/round/disc.py/x.py"]
    origins = [
        *(make_origin(commit, repository=text) for text in ("../../etc", "other/name", "/owner/name/../..", "")),
        *(make_origin(commit, path) for path in paths),
        *(make_origin(key) for key in ("0" * 40, *others)),
    ]
    for origin in origins:
        with pytest.raises(DependencyUnavailable):
            Checkouts(clone.parents[1]).find(origin)


def test_links_and_submodules_are_omitted(clone: Path) -> None:
    make_clone(clone, PACKAGE)
    (clone / "secret").symlink_to("/etc/passwd")
    (clone / "outside").symlink_to("../..")
    run_git(clone, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    (clone / ".gitmodules").write_text('[submodule "module"]\n\tpath = module\n\turl = ext::sh -c touch% canary\n')
    commit = commit_files(clone, {})
    assert export(clone.parents[1], f"owner/name=={commit}").keys() == {*PACKAGE, ".gitmodules"}


def _attack_configuration(clone: Path, act: str) -> None:
    for key in ("core.fsmonitor", "core.sshCommand", "core.pager", "filter.evil.smudge", "diff.evil.textconv"):
        run_git(clone, "config", key, act)
    for key in ("core.hooksPath", "core.worktree", "include.path"):
        run_git(clone, "config", key, "hooks")
    (clone / ".git" / "config").open("a").write("[alias]\n\tcat-file = !touch canary\n[extensions]\n\tnone = 1\n")


def _attack_hooks(clone: Path, act: str) -> None:
    for name in ("post-checkout", "reference-transaction", "post-index-change", "fsmonitor-watchman"):
        hook = clone / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\n{act}\n")
        hook.chmod(0o755)


def _attack_replacement(clone: Path, _act: str) -> None:
    blob = run_git(clone, "rev-parse", "HEAD:shapes/round/disc.py")
    run_git(clone, "replace", blob, write_blob(clone, "AREA = 4\n"))
    (clone / ".git" / "info" / "grafts").write_text(f"{run_git(clone, 'rev-parse', 'HEAD')}\n")


@pytest.mark.parametrize("attack", [_attack_configuration, _attack_hooks, _attack_replacement])
def test_a_clone_runs_nothing_and_replaces_nothing(clone: Path, attack: Callable[[Path, str], None]) -> None:
    commit = make_clone(clone, {**PACKAGE, ".gitattributes": "*.py filter=evil diff=evil text eol=crlf ident\n"})
    canary = clone.parents[2] / "canary"
    attack(clone, f"touch {canary}")
    assert export(clone.parents[1], f"owner/name=={commit}")["shapes/round/disc.py"] == "AREA = 3\n"
    assert not canary.exists()


def test_a_partial_clone_fetches_nothing(clone: Path) -> None:
    commit = make_clone(clone, PACKAGE)
    blob = run_git(clone, "rev-parse", "HEAD:shapes/round/disc.py")
    (clone / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    canary = clone.parents[2] / "canary"
    settings = {"url": f"ext::sh -c touch% {canary}", "promisor": "true", "partialclonefilter": "blob:none"}
    for key, value in settings.items():
        run_git(clone, "config", f"remote.origin.{key}", value)
    run_git(clone, "config", "protocol.ext.allow", "always")
    with pytest.raises(DependencyUnavailable, match=blob):
        export(clone.parents[1], f"owner/name=={commit}")
    assert not canary.exists()


def test_objects_of_another_repository_are_out_of_reach(clone: Path) -> None:
    secret = clone.parents[2] / "secret"
    commit = make_clone(secret, PACKAGE)
    run_git(secret, "repack", "-qad")
    make_clone(clone, {"a.py": ""})
    objects = clone / ".git" / "objects"
    (objects / "info" / "alternates").write_text(f"{secret}/.git/objects\n")
    with pytest.raises(DependencyUnavailable, match="borrows"):
        export(clone.parents[1], f"owner/name=={commit}")
    (objects / "info" / "alternates").unlink()
    (objects / "pack").rmdir()
    (objects / "pack").symlink_to(secret / ".git" / "objects" / "pack")
    with pytest.raises(DependencyUnavailable, match="borrows"):
        export(clone.parents[1], f"owner/name=={commit}")


def test_linked_clones_are_not_followed(clone: Path) -> None:
    make_clone(clone.parents[2] / "elsewhere", PACKAGE)
    clone.parent.mkdir(parents=True)
    clone.symlink_to(clone.parents[2] / "elsewhere")
    (clone.parent / "file").mkdir()
    (clone.parent / "file" / ".git").write_text(f"gitdir: {clone.parents[2] / 'elsewhere' / '.git'}\n")
    (clone.parent / "link").mkdir()
    (clone.parent / "link" / ".git").symlink_to(clone.parents[2] / "elsewhere" / ".git")
    with pytest.raises(UsageError):
        Checkouts(clone.parents[1])


def test_a_tree_with_unsafe_names_is_refused(clone: Path) -> None:
    make_clone(clone, PACKAGE)
    blob = write_blob(clone, "")
    for name in ("..", ".", ".git", ".GIT", "../../x.py", "/x.py", "a/b.py", "A.py", "a.py", "n" * 256):
        below = write_tree(clone, ("100644", "a.py", blob), ("100644", name, blob))
        commit = commit_tree(clone, write_tree(clone, ("40000", "folder", below)))
        with pytest.raises(DependencyUnavailable, match="unsafe"):
            export(clone.parents[1], f"owner/name=={commit}")
    assert not (clone.parents[2] / "x.py").exists()


def test_a_damaged_object_is_refused(clone: Path) -> None:
    commit = make_clone(clone, PACKAGE)
    blob = run_git(clone, "rev-parse", "HEAD:shapes/round/disc.py")
    path = clone / ".git" / "objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"blob 9\0AREA = 4\n"))
    with pytest.raises(DependencyUnavailable, match=blob):
        export(clone.parents[1], f"owner/name=={commit}")


def test_a_pipe_in_place_of_an_object_ends_at_the_time_limit(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = make_clone(clone, PACKAGE)
    path = clone / ".git" / "objects" / commit[:2] / commit[2:]
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(module, "_SECONDS", 0.2)
    with pytest.raises(DependencyUnavailable, match=commit):
        Checkouts(clone.parents[1]).find(make_origin(commit))


def test_a_tree_that_repeats_itself_is_refused(clone: Path) -> None:
    make_clone(clone, PACKAGE)
    tree = write_tree(clone, ("100644", "a.py", write_blob(clone, "")))
    for _level in range(10):
        tree = write_tree(clone, *(("40000", f"f{number}", tree) for number in range(10)))
    commit = commit_tree(clone, tree)
    with pytest.raises(DependencyUnavailable, match=str(module.MAX_ENTRIES)):
        export(clone.parents[1], f"owner/name=={commit}")


def test_a_large_checkout_is_refused(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = make_clone(clone, {**PACKAGE, "data.bin": b"x" * 4096})
    monkeypatch.setattr(module, "MAX_BYTES", 4096)
    with pytest.raises(DependencyUnavailable, match="larger"):
        export(clone.parents[1], f"owner/name=={commit}")


def test_a_folder_without_clones_or_a_machine_without_git_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="checkouts"):
        Checkouts(tmp_path)
    make_clone(tmp_path / "a" / "b", PACKAGE)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="git"):
        Checkouts(tmp_path)
