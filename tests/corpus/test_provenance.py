"""Repositories, commits and licences of source files."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar

import pytest

from agent.corpus.provenance import UNKNOWN, Origins, find_licence
from tests.corpus.test_licences import MIT

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


def make_repository(folder: Path, url: str = "https://example.org/a/b.git", head: str = "ref: refs/heads/main") -> Path:
    git = folder / ".git"
    (git / "refs/heads").mkdir(parents=True)
    (git / "config").write_text(f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {url}\n\tfetch = +refs/*:refs/*\n')
    (git / "HEAD").write_text(f"{head}\n")
    (git / "refs/heads/main").write_text(f"{COMMIT}\n")
    return git


def install(folder: Path, name: str, metadata: str, record: str) -> None:
    (folder / f"{name}-1.0.dist-info").mkdir(parents=True)
    (folder / f"{name}-1.0.dist-info/METADATA").write_text(f"Name: {name}\nVersion: 1.0\n{metadata}\n")
    (folder / f"{name}-1.0.dist-info/RECORD").write_text(record)


class TestRepository:
    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("https://example.org/a/b.git", "https://example.org/a/b.git"),
            ("https://ann:s3cret@example.org:8443/a/b?private_token=t#x", "https://example.org:8443/a/b"),
            ("git@example.org:a/b.git", "ssh://example.org/a/b.git"),
            ("ssh://git@example.org/a/b.git", "ssh://example.org/a/b.git"),
            ("/home/ann/repositories/b", None),
            ("ext::sh -c touch% /tmp/x", None),
            ("https://[broken/a", None),
            ("C:/Users/ann/b", None),
        ],
    )
    def test_a_url_has_no_credentials_and_no_local_path(self, tmp_path: Path, url: str, expected: str | None) -> None:
        make_repository(tmp_path, url)
        assert Origins().find(tmp_path / "a.py")["repository"] == expected

    def test_a_real_repository_is_read_without_git(self, tmp_path: Path) -> None:
        git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", "-C", str(tmp_path)]
        for words in (["init", "-q"], ["remote", "add", "origin", "https://example.org/a/b"],
                      ["commit", "-q", "--allow-empty", "-m", "x"]):  # fmt: skip
            subprocess.run([*git, *words], check=True)
        commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        expected = {**UNKNOWN, "repository": "https://example.org/a/b", "commit": commit}
        assert Origins().find(tmp_path / "deep/er/a.py") == expected
        subprocess.run([*git, "pack-refs", "--all"], check=True)
        assert not any((tmp_path / ".git/refs/heads").iterdir())
        assert Origins().find(tmp_path / "deep/a.py") == expected

    @pytest.mark.parametrize(
        ("head", "commit"),
        [(OTHER, OTHER), ("ref: refs/heads/none", None), ("ref: refs/heads/../../../secret", None), ("x", None)],
    )
    def test_head_is_a_commit_or_a_reference(self, tmp_path: Path, head: str, commit: str | None) -> None:
        make_repository(tmp_path / "a", head=head)
        (tmp_path / "secret").write_text(OTHER)
        assert Origins().find(tmp_path / "a/a.py")["commit"] == commit

    def test_the_nearest_repository_counts(self, tmp_path: Path) -> None:
        make_repository(tmp_path, "https://example.org/outer")
        make_repository(tmp_path / "inner", "https://example.org/inner")
        (tmp_path / "submodule").mkdir()
        (tmp_path / "submodule/.git").write_text("gitdir: ../.git/modules/submodule\n")
        found = [Origins().find(tmp_path / name)["repository"] for name in ("a.py", "inner/x/a.py", "submodule/a.py")]
        assert found == ["https://example.org/outer", "https://example.org/inner", None]

    def test_links_in_a_repository_are_not_followed(self, tmp_path: Path) -> None:
        make_repository(tmp_path / "other")
        git = make_repository(tmp_path / "a")
        for name in ("config", "HEAD"):
            (git / name).unlink()
            (git / name).symlink_to(tmp_path / "other/.git" / name)
        assert Origins().find(tmp_path / "a/deep/a.py") == UNKNOWN
        shutil.rmtree(git)
        git.symlink_to(tmp_path / "other/.git")
        assert Origins().find(tmp_path / "a/deep/a.py") == UNKNOWN


class TestInstalledDistribution:
    @pytest.mark.parametrize(
        ("metadata", "licence"),
        [
            ("License-Expression: MIT OR Apache-2.0\nLicense: other", "MIT OR Apache-2.0"),
            ("License: BSD\nClassifier: License :: OSI Approved :: MIT License", "BSD"),
            ("License: UNKNOWN\nClassifier: License :: OSI Approved :: MIT License", "MIT License"),
            ("Classifier: License :: OSI Approved", None),
            (f"License: {'long text ' * 20}", None),
        ],
    )  # fmt: skip
    def test_a_licence_comes_from_the_metadata(self, tmp_path: Path, metadata: str, licence: str | None) -> None:
        folder = tmp_path / "site-packages"
        install(folder, "pack", metadata, "pack/a.py,sha256=x,1\n")
        origin = {"repository": "pack", "commit": "1.0", "module": "pack.a", "licence": licence}
        assert Origins().find(folder / "pack/a.py") == origin

    def test_only_files_in_its_record_belong_to_a_distribution(self, tmp_path: Path) -> None:
        make_repository(tmp_path)
        folder = tmp_path / "lib/site-packages"
        install(folder, "one", "License: MIT", '"one/a,b.py",,\n../../outside.py,,\n')
        install(folder, "two", "License: BSD", "two.py,,\n\n")
        (folder / "broken-1.dist-info").mkdir()
        origins = Origins()
        assert origins.find(folder / "one/a,b.py")["repository"] == "one"
        assert origins.find(folder / "two.py")["repository"] == "two"
        assert origins.find(folder / "other/a.py") == UNKNOWN
        assert origins.find(tmp_path / "outside.py")["repository"] == "https://example.org/a/b.git"


class TestModule:
    INSTALLED: ClassVar = {
        "pack/a.py": "pack.a", "pack/__init__.py": "pack", "pack/space/b.py": "pack.space.b", "one.py": "one",
        "pack/no-name.py": None, "pack/n.ipynb": None,
    }  # fmt: skip
    CLONED: ClassVar = {
        "pack/deep/a.py": "pack.deep.a", "pack/deep/__init__.py": "pack.deep", "libraries/inner/a.py": "inner.a",
        "src/space/pack/a.py": "space.pack.a", "src/a.py": "a", "pack/src/a.py": "pack.src.a", "top.py": "top",
        "scripts/a.py": None, "__init__.py": None,
    }  # fmt: skip

    def test_installed_files_are_imported_from_the_folder_of_their_distribution(self, tmp_path: Path) -> None:
        folder, origins = tmp_path / "src/site-packages", Origins()
        install(folder, "pack", "", "".join(f"{name},,\n" for name in self.INSTALLED))
        assert {name: origins.find(folder / name)["module"] for name in self.INSTALLED} == self.INSTALLED

    def test_files_of_a_repository_are_imported_from_its_sources(self, tmp_path: Path) -> None:
        repository, origins = tmp_path / "src", Origins()
        make_repository(repository)
        for package in (".", "pack", "pack/deep", "pack/src", "libraries/inner", "src/space/pack"):
            add(repository, f"{package}/__init__.py", "")
        assert {name: origins.find(repository / name)["module"] for name in self.CLONED} == self.CLONED
        shutil.rmtree(repository / ".git")
        assert Origins().find(repository / "pack/a.py") == UNKNOWN


def add(folder: Path, name: str, text: str = MIT) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


class TestLicenceFile:
    @pytest.mark.parametrize(
        ("files", "licence"),
        [
            ({"LICENSE": MIT}, "MIT"),
            ({"copying.txt": MIT, "LICENCE-MIT": MIT}, "MIT"),
            ({"LICENSE": MIT, "LICENSE.other": "You must pay."}, None),
            ({"LICENSE": "You must pay.", "a/LICENSE": MIT}, "MIT"),
            ({"LICENSE": MIT, "a/LICENSE": "You must pay."}, None),  # the nearest counts
            ({"license.py": "x = 1", "LICENSE/MIT": MIT}, None),
            ({"LICENSE": MIT + "\n" * (1 << 18) + "You must pay."}, None),
            ({"pyproject.toml": '[project]\nlicense = "BSD-3-Clause"', "LICENSE": MIT}, "BSD-3-Clause"),
            ({"pyproject.toml": '[project]\nlicense = {text = "ISC"}'}, "ISC"),
            ({"pyproject.toml": '[project]\nclassifiers = ["License :: OSI Approved :: MIT License"]'}, "MIT License"),
            ({"pyproject.toml": '[project]\nlicense = {file = "X"}', "LICENSE": MIT}, "MIT"),
            ({"pyproject.toml": "x = " + "[" * 100_000, "LICENSE": MIT}, "MIT"),
            ({"package.json": '{"license": "ISC"}', "LICENSE": MIT}, "ISC"),
            ({"package.json": '{"license": "SEE LICENSE IN x"}', "LICENSE": MIT}, "MIT"),
            ({"package.json": '{"license": {"type": "ISC"}}', "LICENSE": MIT}, "MIT"),
            ({"package.json": "[" * 100_000, "LICENSE": MIT}, "MIT"),
        ],
    )
    def test_a_checkout_has_the_licence_of_the_nearest_file(
        self, tmp_path: Path, files: dict[str, str], licence: str | None
    ) -> None:
        make_repository(tmp_path)
        for name, text in files.items():
            add(tmp_path, name, text)
        origin = Origins().find(tmp_path / "a/deep/a.py", tmp_path / "a/deep")
        assert (origin["commit"], origin["licence"]) == (COMMIT, licence)

    def test_links_and_pipes_are_unknown(self, tmp_path: Path) -> None:
        add(tmp_path, "LICENSE")
        for name in ("a", "b"):
            make_repository(tmp_path / name)
        (tmp_path / "a/LICENSE").symlink_to(tmp_path / "LICENSE")
        os.mkfifo(tmp_path / "b/LICENSE")
        assert [Origins().find(tmp_path / name / "a.py")["licence"] for name in ("a", "b")] == [None, None]

    def test_without_a_repository_the_search_ends_at_the_folder_of_the_user(self, tmp_path: Path) -> None:
        add(tmp_path, "LICENSE")
        add(tmp_path, "package/__init__.py", "")
        add(tmp_path, "package/sub/__init__.py", "")
        file, folder = tmp_path / "package/sub/a.py", tmp_path / "plain/a.py"
        assert Origins().find(folder, folder.parent)["licence"] is None
        assert Origins().find(folder, tmp_path)["licence"] == "MIT"
        assert Origins().find(file, tmp_path / "package")["licence"] == "MIT"
        assert Origins().find(file)["licence"] == "MIT"

    def test_a_copied_package_belongs_to_the_distribution_next_to_it(self, tmp_path: Path) -> None:
        add(tmp_path, "LICENSE", "You must pay.")
        install(tmp_path, "pack", "", "pack/a.py,,\npack/vendor/b.py,,\n")
        add(tmp_path, "pack-1.0.dist-info/licenses/LICENSE")
        add(tmp_path, "pack/vendor/LICENSE", "You must pay.")
        names = ("pack/a.py", "pack/vendor/b.py")
        found = [Origins().find(tmp_path / name, tmp_path / "pack") for name in names]
        assert [(origin["repository"], origin["commit"], origin["licence"]) for origin in found] == [
            ("pack", "1.0", "MIT"), ("pack", "1.0", None)
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "licence"),
    [
        ("#!/usr/bin/python\n# SPDX-License-Identifier: MIT\nx = 1\n", "MIT"),
        ("# -*- SPDX-License-Identifier: (GPL-2.0+ WITH x) OR BSD-3-Clause -*-\n", "(GPL-2.0+ WITH x) OR BSD-3-Clause"),
        ("\n" * 30 + "# SPDX-License-Identifier: MIT\n", None),
        ("x = 'SPDX-License-Identifier: MIT'\n", None),
    ],
)
def test_a_licence_is_read_from_an_spdx_comment(source: str, licence: str | None) -> None:
    assert find_licence(source) == licence
