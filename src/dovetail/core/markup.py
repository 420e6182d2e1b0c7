"""HTML and SVG from Python. All content that is not markup already is escaped, so a name can be any text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from dovetail.visible import visible


class Html(str):
    """Text that is already markup."""

    __slots__ = ()


Content = str | None


def tag(element: str, /, *content: Content, **attributes: str | float | None) -> Html:
    """An element. The attribute class is `class_`, aria-label is `aria_label`; None attributes are left out."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(visible(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = together(*content)
    if not inside and element in ("meta", "link"):
        return Html(f"<{element}{said}>")
    return Html(f"<{element}{said}>{inside}</{element}>")


def together(*content: Content) -> Html:
    """Several pieces, concatenated."""
    parts = (part if isinstance(part, Html) else escape(visible(part)) for part in content if part is not None)
    return Html("".join(parts))


def table_of(names: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> Html:
    """Rows as a table with a header."""
    columns = list(names)
    head = tag("tr", *(tag("th", name) for name in columns))
    body = [tag("tr", *(tag("td", str(row[name])) for name in columns)) for row in rows]
    return tag("table", tag("thead", head), tag("tbody", *body))
