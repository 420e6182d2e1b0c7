"""Imports between files."""

from __future__ import annotations

from graphlib import TopologicalSorter

import grimp


def test_no_files_import_each_other() -> None:
    """This includes imports in functions: dependencies go one way."""
    graph = grimp.build_graph("dovetail", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # CycleError names the files
