"""MkDocs hooks: pages made from other files, and docstrings on the pages of operators."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
GENERATED = {"changelog.md": "CHANGELOG.md", "licences.md": "locks/licences.md"}
OUTSIDE = re.compile(r"\]\((?:\.\./)+(CHANGELOG)\.md\)")
DIAG = "dovetail.diag.join"


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for page, source in GENERATED.items():
        text = re.sub(r"\]\(docs/", "](", (ROOT / source).read_text())
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    place = page.file.src_uri
    markdown = OUTSIDE.sub(lambda m: f"]({'../' * place.count('/')}{m[1].lower()}.md)", markdown)
    # To the highlighter, all outputs are plain text, whether or not their figures vary.
    markdown = markdown.replace("```varies\n", "```text\n")
    if place.startswith("operators/") and place != "operators/index.md":
        markdown += "\n".join(_words_of_the_code(Path(place).stem))
    return markdown


def _words_of_the_code(operator: str) -> list[str]:
    """The docstrings of an operator: the idea, phases, guarantee, citation and deviations."""
    places = [DIAG] if operator == "diag" else _registered()[operator]
    sections = ["\n\n## Phases, guarantee, deviations\n"]
    for place in places:
        module, _, name = place.partition(":")
        path = SOURCE / f"{module.replace('.', '/')}.py"
        tree = ast.parse(path.read_text())
        kinds = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
        own = (ast.get_docstring(kinds[0]) if kinds else None) or ""
        text = own if "Guarantee" in own or operator.startswith("rpj_") else ast.get_docstring(tree) or ""
        text = re.sub(r"^(Guarantee|Deviations):", r"**\1.**", inspect.cleandoc(text), flags=re.MULTILINE)
        sections.append(f"From `{path.relative_to(ROOT)}`:\n\n{text}\n")
    return sections


def _registered() -> dict[str, tuple[str, ...]]:
    """The classes of each operator, read without importing anything."""
    tree = ast.parse((SOURCE / "dovetail/operators/registry.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "REGISTRY":
            found: dict[str, tuple[str, ...]] = ast.literal_eval(node.value)
            return found
    raise LookupError("REGISTRY is not in registry.py")
