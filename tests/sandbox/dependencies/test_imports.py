from __future__ import annotations

import ast
import json
import sys
import warnings
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from agent.languages.python.language import PythonLanguage
from agent.sandbox.dependencies.imports import (
    DISTRIBUTIONS,
    PYTHON2_MODULES,
    REMOVED_FROM_STDLIB,
    WHEEL_SUBSTITUTES,
    find_distribution,
    find_known_name,
    find_requirement,
    is_stdlib,
)


@pytest.mark.parametrize(
    ("name", "requirement"),
    [
        ("cv2", "opencv-python-headless"),
        ("PIL.Image", "pillow"),
        ("sklearn.metrics.pairwise", "scikit-learn"),
        ("Crypto", "pycryptodome"),
        ("google.protobuf.message", "protobuf"),
        ("azure.storage.blob", "azure-storage-blob"),
        ("grpc", "grpcio"),
        ("psycopg2", "psycopg2-binary"),
        ("nose", "pynose"),
        ("numpy", "numpy"),
    ],
)
def test_known_import_names_map_to_requirements(name: str, requirement: str) -> None:
    assert find_requirement(name) == requirement


@pytest.mark.parametrize("name", ["invenio", "google", "google.cloud", "utils", "np", "", ".", "..", "Yaml", "opencv"])
def test_other_names_are_unknown(name: str) -> None:
    assert find_requirement(name) is None


def test_standard_modules_have_no_distribution() -> None:
    names = (*PYTHON2_MODULES, *REMOVED_FROM_STDLIB, *sys.stdlib_module_names)
    assert [name for name in names if find_requirement(name) is not None] == []


def test_standard_modules_of_every_supported_python_are_recognised() -> None:
    assert all(map(is_stdlib, ("parser", "symbol", "formatter", "binhex", "dummy_threading")))
    assert all(map(is_stdlib, ("os", "os.path", "json", "imp", "distutils.core", "telnetlib", "tomllib", "__future__")))
    assert not any(map(is_stdlib, ("numpy", "urllib2", "StringIO", "")))


def test_python_2_modules_map_to_python_3_modules() -> None:
    assert not set(PYTHON2_MODULES) & set(sys.stdlib_module_names)
    assert all(is_stdlib(module) or module == "str" for module in PYTHON2_MODULES.values())


@pytest.mark.parametrize("name", ["urllib2", "ConfigParser", "StringIO", "Queue", "cPickle", "compiler", "Tkconstants"])
def test_the_advice_for_a_python_2_import_names_the_python_3_module(name: str) -> None:
    advice = " ".join(PythonLanguage().inspect(f"import {name}\n").advice)
    assert f"`{name} (now {PYTHON2_MODULES[name]})`" in advice


def test_a_dotted_name_is_reduced_to_the_part_that_the_map_contains() -> None:
    names = ("google.protobuf.message", "google.cloud", "ruamel.yaml", "mpl_toolkits.mplot3d", "own.deep.module")
    assert [find_known_name(name) for name in names] == ["google.protobuf", "google", "ruamel", "mpl_toolkits", "own"]


def test_every_entry_is_a_requirement_and_the_map_is_consistent() -> None:
    for value in (*DISTRIBUTIONS.values(), *WHEEL_SUBSTITUTES.values()):
        requirement = Requirement(value)
        assert requirement.url is None
        assert requirement.marker is None
    for name in WHEEL_SUBSTITUTES:
        assert WHEEL_SUBSTITUTES[name] not in WHEEL_SUBSTITUTES
        assert name not in DISTRIBUTIONS.values()


def test_installer_names_ignore_case_and_separators() -> None:
    assert find_distribution("Pil") == "pillow"
    assert find_distribution("Opencv_Python") == "opencv-python-headless"
    assert find_distribution("pkg_resources") == "pkg_resources"


@pytest.mark.real_data
def test_the_map_covers_many_imports_of_real_code(real_data: Path) -> None:
    names = []
    for line in (real_data / "cosqa_search_codes_6267.jsonl").read_text(encoding="utf-8").splitlines():
        names += _list_third_party_imports(json.loads(line)["code"])
    known_count = sum(find_requirement(name) is not None for name in names)
    assert len(names) > 80
    assert known_count / len(names) > 0.45


def _list_third_party_imports(code: str) -> list[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nodes = list(ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError):
        return []
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return [name for name in names if not is_stdlib(name) and name.partition(".")[0] not in PYTHON2_MODULES]
