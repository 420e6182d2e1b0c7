"""A plan as a picture: well-formed for any names and conditions."""

from __future__ import annotations

from xml.etree import ElementTree

import pyarrow as pa
import pytest
from tests.monitoring.runs import HOSTILE

import dovetail

TABLE = pa.table({"k": [1, 2], HOSTILE: [1, 2]})


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (dovetail.explain(TABLE, TABLE, ["k"]), {"l", "r", "2 rows", "equality", "inner join", "about 2 pairs"}),
        (dovetail.explain(TABLE, TABLE, f"l.`{HOSTILE}` < r.k", "left", limit=7), {"7 rows", "left join"}),
        (
            dovetail.explain({"a": TABLE, "b": TABLE, "c": TABLE}, "a.k = b.k AND b.k = c.k", progressive=True),
            {"a", "b", "c", "2 columns", "inner join"},
        ),
    ],
    ids=["two", "hostile", "three"],
)
def test_a_plan_is_a_picture(plan: object, words: set[str]) -> None:
    html = plan._repr_html_()  # type: ignore[attr-defined]
    svg = ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + len("</svg>")])
    drawn = {text.text for text in svg.iter() if text.tag.endswith("text")}
    assert words <= drawn
    assert HOSTILE not in html
    assert all(name in html for name, _ in plan.decisions)  # type: ignore[attr-defined]


def test_a_box_is_as_wide_as_its_text_up_to_a_limit() -> None:
    condition = "l.k = r.k AND l.second_key < r.second_key"
    table = TABLE.append_column("second_key", pa.array([1, 2]))
    shown = dovetail.explain(table, table, condition)._repr_html_()
    assert ">equality, one_inequality</text>" in shown
    assert ">l.k = r.k AND l.second_key &lt; r.second_key</text>" in shown
    long = dovetail.explain(table, table, f"{condition} AND {condition.replace('<', '<=')}")._repr_html_()
    assert "…</text>" in long
