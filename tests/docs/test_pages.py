"""Every block of Python in the README and the documentation runs, to the end and with results."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.docs.pages import ROOT, SET_UPS, SHARED, blocks, needs_spark, pages, run

import dovetail

CALL = re.compile(r"\bdovetail\.\w+\(")


def completer(place: Path) -> Callable[[Any], None]:
    """What a reader would do with a value: look at it, or let it run to its end."""
    checkpoints = iter(range(100))

    def complete(value: Any) -> None:
        if isinstance(value, pa.Table):
            assert value.num_rows
        elif hasattr(value, "processAllAvailable"):  # a query
            value.processAllAvailable()
            value.stop()
        elif getattr(value, "isStreaming", False):
            out, checkpoint = place / f"out-{next(checkpoints)}", place / f"checkpoint-{next(checkpoints)}"
            writer = value.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
            dovetail.finish(writer.start(str(out)))
            assert value.sparkSession.read.parquet(str(out)).count()
        elif hasattr(value, "sparkSession"):
            assert value.count()

    return complete


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.spark if needs_spark(page) else ()) for page in pages()]
)
def test_blocks(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shared").mkdir()
    given = {"spark": request.getfixturevalue("spark")} if needs_spark(page) else {}
    if given:
        request.getfixturevalue("two_partitions")
    complete = completer(tmp_path)
    with SET_UPS[page](tmp_path, **given) as ready:
        names = dict(ready.names)
        addresses = {f'"{SHARED}/': f'"{tmp_path}/shared/', **ready.addresses}
        found = [block for block in blocks(ROOT / page) if block.language == "python"]
        assert len(found) == (ROOT / page).read_text().count("```python")
        for block in found:
            text = block.text
            for written, meant in addresses.items():
                text = text.replace(written, meant)
            run(block._replace(text=text), page, names, complete)
    for sink in tmp_path.glob("shared/*/_spark_metadata"):
        assert given["spark"].read.parquet(str(sink.parent)).count(), f"nothing in {sink.parent.name}"


def test_no_page_and_no_block_is_left_out() -> None:
    assert set(pages()) == SET_UPS.keys()
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]:
        for block in blocks(page):
            assert block.language in ("", "python"), f"{page}:{block.line}"
            assert block.language == "python" or not CALL.search(block.text), f"{page}:{block.line} is not run"
