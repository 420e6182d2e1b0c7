"""Makes foreign text safe to print: it may contain characters that a terminal obeys instead of showing."""

from __future__ import annotations

import re

UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters of both sets: escape sequences begin with one
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # text direction, and line ends
    "\ud800-\udfff]"  # surrogates, which no terminal can print
)


def visible(text: str, *, one_line: bool = False) -> str:
    r"""The text with escape sequences written out, as \x1b[31m. Line ends and tabs stay, unless `one_line`."""
    shown = UNSEEN.sub(_written_out, text)
    return shown.replace("\n", "\\n").replace("\t", "\\t") if one_line else shown


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
