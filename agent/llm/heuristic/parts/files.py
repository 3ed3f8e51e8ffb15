"""Helpers of programs that make files to work on."""

from __future__ import annotations

from typing import Any


def _given_folder() -> str:
    """Return a new folder with two files in it."""
    import pathlib
    import tempfile

    folder = tempfile.mkdtemp()
    for name in ("one.txt", "two.txt"):
        pathlib.Path(folder, name).write_text("alpha\n")
    return folder


def _given_new_path() -> str:
    """Return the path of a file that does not exist yet."""
    return _given_folder() + "/new.out"


def _given_file(suffix: str = ".txt") -> str:
    """Return the path of a new file with contents that suit its suffix."""
    import base64
    import pathlib
    import zipfile

    texts = {
        ".json": '{"a": 1, "b": [1, 2]}',
        ".csv": "name,value\na,1\nb,2\n",
        ".yaml": "a: 1\nb:\n  - 1\n  - 2\n",
        ".xml": "<root><item>one</item></root>\n",
    }
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
    path = pathlib.Path(_given_folder(), "given" + suffix)
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("one.txt", "alpha\n")
    elif suffix == ".png":
        path.write_bytes(base64.b64decode(dot))
    else:
        path.write_text(texts.get(suffix, "alpha  beta\n\ngamma\n"))
    return str(path)


def _given_handle(mode: str = "r") -> Any:
    """Return an open file."""
    import pathlib

    return pathlib.Path(_given_file()).open(mode)
