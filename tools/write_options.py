"""Generates code and docs from the table of options: signatures and docstrings in api.py, and docs/options.md.

Run `python -m tools.write_options` after changing src/dovetail/options.py. A test fails if this was forgotten.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from dovetail.options import CALLS, OPTIONS, PLACES, Option, options_of

ROOT = Path(__file__).parents[1]
API, PAGE = ROOT / "src" / "dovetail" / "api.py", ROOT / "docs" / "options.md"
WIDTH = 120
NAMES = {row.name for row in OPTIONS}
INTRODUCTION = """# Options

Where each option means something. Elsewhere it is refused, and the error says what it is for; "no effect" marks options
that are accepted all the same, so that one set of options serves tables and streams. The [API](reference.md) says what
each option is. `dovetail.explain` takes the options of the call that it explains, and the
[pages of operators](operators/index.md) have the parameters of algorithms.
"""


def written_api(text: str) -> str:
    """The source of api.py, with the options of its calls replaced by those of the table."""
    for call in CALLS:
        start = text.index(f"\ndef {call}(")
        end = text.index("\n    **", start)
        signature = text.index("\n    *,\n", start) + len("\n    *,\n")
        text = text[:signature] + "".join(map(_argument, options_of(call).values())) + text[end + 1 :]
        first = text.index("    Args:\n", start) + len("    Args:\n")
        last = text.index("        **", first)
        own = [entry for entry in _entries(text[first:last]) if _name(entry) not in NAMES]
        described = [_described(row) for row in options_of(call).values()]
        text = text[:first] + "".join([*own, *described]) + text[last:]
    return text


def _argument(row: Option) -> str:
    default = f'"{row.default}"' if isinstance(row.default, str) else repr(row.default)
    return f"    {row.name}: {row.type} = {default},\n"


def _described(row: Option) -> str:
    wrapped = textwrap.wrap(
        f"{row.name}: {row.summary}", WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 12, break_on_hyphens=False
    )
    return "\n".join(wrapped) + "\n"


def _entries(text: str) -> list[str]:
    """The entries in the Args section of a docstring, each with its continuation lines."""
    return re.findall(r"^ {8}\S.*\n(?:^ {12}.*\n)*", text, re.MULTILINE)


def _name(entry: str) -> str:
    return entry.strip().partition(":")[0]


def page() -> str:
    """The page: for each call, a table of the places where each option applies."""
    parts = [INTRODUCTION]
    for call, where in CALLS.items():
        places = [place for place in PLACES if place in where]
        if not places:
            continue
        parts += [
            f"## `{call}`",
            "",
            f"| | {' | '.join(PLACES[place] for place in places)} |",
            "|---" * len(places) + "|---|",
        ]
        for row in options_of(call).values():
            marks = ["yes" if place in row.where else "no effect" if place in row.ignored else "" for place in places]
            parts.append(f"| `{row.name}` | {' | '.join(marks)} |".replace("  ", " "))
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    API.write_text(written_api(API.read_text()))
    PAGE.write_text(page())
