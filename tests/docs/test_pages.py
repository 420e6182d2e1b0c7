"""Every block of Python in the README and the documentation runs to the end, with the output shown on the page."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.docs.pages import NOT_RUN, ROOT, SET_UPS, SHARED, SLOW, Block, blocks, needs_spark, pages, run, set_up

import dovetail

SETTINGS = ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions")
CALL = re.compile(r"\bdovetail\.\w+\(")


def completer(place: Path) -> Callable[[Any], None]:
    """Does with a value what a reader would do: inspects it, or runs it to the end."""
    checkpoints = iter(range(100))

    def complete(value: Any) -> None:
        if isinstance(value, pa.Table):
            assert value.num_rows
        elif hasattr(value, "processAllAvailable"):  # a streaming query
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


def marks(page: str) -> list[pytest.MarkDecorator]:
    on_spark = [pytest.mark.spark, pytest.mark.one_in(5)] if needs_spark(page) else []
    return on_spark + [pytest.mark.slow] * (page in SLOW)


def comparable(output: str, language: str) -> str:
    lines = "\n".join(line.rstrip() for line in output.strip("\n").splitlines())
    return lines if language == "text" else re.sub(r"[-\d.,:]+", "#", lines)


@pytest.fixture
def settings_as_before(request: pytest.FixtureRequest) -> Iterator[None]:
    """Restore the session's time zone and partitions: pages change them, but tests share the session."""
    page: str = request.node.callspec.params["page"]
    conf = request.getfixturevalue("spark").conf if needs_spark(page) else None
    before = {name: conf.get(name) for name in SETTINGS} if conf else {}
    yield
    for name, value in before.items():
        conf.set(name, value)


@pytest.mark.usefixtures("settings_as_before")
@pytest.mark.parametrize("page", [pytest.param(page, marks=marks(page)) for page in pages()])
def test_blocks(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shared").mkdir()
    given = {"spark": request.getfixturevalue("spark")} if needs_spark(page) else {}
    if given:
        request.getfixturevalue("two_partitions")
    complete = completer(tmp_path)
    with set_up(page)(tmp_path, **given) as ready:
        names = dict(ready.names)
        addresses = {f'"{place}/': f'"{tmp_path}/shared/' for place in SHARED} | dict(ready.addresses)
        addresses['"examples/'] = f'"{ROOT}/examples/'
        found = blocks(ROOT / page)
        assert sum(block.language == "python" for block in found) == (ROOT / page).read_text().count("```python")
        for block, following in zip(found, [*found[1:], None], strict=True):
            if not block.is_run:
                continue
            text = block.text
            for written, meant in addresses.items():
                text = text.replace(written, meant)
            with redirect_stdout(io.StringIO()) as output:
                run(block._replace(text=text), page, names, complete)
            if following is not None and following.is_output:
                said = following.language
                assert comparable(output.getvalue(), said) == comparable(following.text, said), f"{page}:{block.line}"
    for sink in tmp_path.glob("shared/*/_spark_metadata"):
        assert given["spark"].read.parquet(str(sink.parent)).count(), f"nothing in {sink.parent.name}"


def test_blocks_that_are_not_run_compile() -> None:
    for page in pages():
        for block in blocks(ROOT / page):
            if block.text.startswith(NOT_RUN):
                ast.parse(block.text, page)


def test_no_page_and_no_block_is_left_out() -> None:
    assert SET_UPS.keys() <= set(pages())
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]:
        before: Block | None = None
        for block in blocks(page):
            assert block.language in ("", "python", "text", "varies", "mermaid"), f"{page}:{block.line}"
            assert block.language == "python" or not CALL.search(block.text), f"{page}:{block.line} is not run"
            if block.is_output:
                assert before is not None, f"{page}:{block.line}"
                assert before.is_run, f"{page}:{block.line}"
            before = block
