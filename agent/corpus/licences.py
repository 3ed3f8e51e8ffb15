"""Recognises the texts of common licences by hashes of their words. Any other text stays unknown."""

from __future__ import annotations

import re
from hashlib import sha256
from itertools import dropwhile

_HASHES: dict[str, str] = {
    "25a274d52b3014d9": "0BSD",
    "9d0206d9ff177c23": "AGPL-3.0",
    "bf79c817f9d5f473": "Apache-2.0",
    "312ea33736a8c485": "BSD-2-Clause",
    "cc2d821900825032": "BSD-3-Clause",
    "873825822e1333fc": "BSL-1.0",
    "07793250413cbc0a": "CC-BY-4.0",
    "4e19e5334b015a4d": "CC-BY-SA-4.0",
    "9df98c7be9808093": "CC0-1.0",
    "c0b9eb61139c5573": "GPL-2.0",
    "1c31b5b4f6bb62cb": "GPL-3.0",
    "217da0747cec63a2": "ISC",
    "0d2abd5ebf7f9e8f": "LGPL-2.1",
    "7f9e89fc71737138": "LGPL-3.0",
    "602556cb49dcc20b": "MIT",
    "72ccb554a188e644": "MPL-2.0",
    "7a4d92cdb11d2549": "Unlicense",
    "9ddc78a5797b5008": "Zlib",
}
# the lines above a text: its title, and who has the rights
_HEADER = re.compile(
    r"(?!.*\b(?:commercial|except|not?|only|use)\b)"
    r"\W*(?:.*(?:copyright|\(c\)|©).{0,80}|all rights reserved|(?:the )?[\w .-]{0,40}licen[cs]e[\w (),.:-]{0,30})?\W*"
)
_MAX_HEADER_LENGTH = 200
_LIST_MARKER = re.compile(r"^[ \t]*(?:[-*•]|\(?[0-9a-d][.)])\s", re.MULTILINE)
_OWNER = re.compile(r"(?<=neither the name )of .{1,120}?(?= nor the names)|(?<=copyright holder)s|(?<=http)s")
_APACHE_APPENDIX = re.compile(
    r"(?<=additional liability)(?: end of terms and conditions)?(?: appendix how to .{0,560})?"
    r"(?: copyright .{0,90}licensed under the apache license version 2 0 .{0,480}limitations under the license)?$"
)


def _is_header(line: str) -> bool:
    return len(line) <= _MAX_HEADER_LENGTH and _HEADER.fullmatch(line.strip()) is not None


def recognise_licence(text: str) -> str | None:
    """Return the SPDX id of a licence text. GPL texts do not say whether later versions apply, so their ids do not.

    Titles, copyright lines, list markers and the owner's name may differ from the published text, and no other word.
    """
    lines = dropwhile(_is_header, text.lower().splitlines())
    words = " ".join(re.findall(r"[a-z0-9]+", _LIST_MARKER.sub("", "\n".join(lines))))
    words = _APACHE_APPENDIX.sub("", _OWNER.sub("", words.replace("copyright owner", "copyright holder")))
    return _HASHES.get(sha256(words.encode()).hexdigest()[:16])
