"""Large numbers for a terminal, three lines high, made of half blocks, with words beside them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

DIGITS = {
    "0": ("███", "█ █", "█ █", "█ █", "███"),
    "1": ("██ ", " █ ", " █ ", " █ ", "███"),
    "2": ("███", "  █", "███", "█  ", "███"),
    "3": ("███", "  █", "███", "  █", "███"),
    "4": ("█ █", "█ █", "███", "  █", "  █"),
    "5": ("███", "█  ", "███", "  █", "███"),
    "6": ("███", "█  ", "███", "█ █", "███"),
    "7": ("███", "  █", "  █", "  █", "  █"),
    "8": ("███", "█ █", "███", "█ █", "███"),
    "9": ("███", "█ █", "███", "  █", "███"),
    ",": (" ", " ", " ", "█", "█"),
    "%": ("█ █", "  █", " █ ", "█  ", "█ █"),
}
HALVES = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
INDENT, GAP = "  ", "   "


def large(number: str, style: str, beside: Sequence[str]) -> list[Text]:
    """Three lines; `beside` has the words for each line."""
    rows = [" ".join(DIGITS[letter][row] for letter in number) for row in range(5)]
    rows.append(" " * len(rows[0]))
    pairs = (zip(rows[row], rows[row + 1], strict=True) for row in range(0, 6, 2))
    drawn = ["".join(HALVES[upper != " ", lower != " "] for upper, lower in pair) for pair in pairs]
    return [Text.assemble(INDENT, (line, style), GAP, words) for line, words in zip(drawn, beside, strict=True)]
