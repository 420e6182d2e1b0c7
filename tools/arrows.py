"""Imports between the parts of a package: how many arrows, which run upwards, which parts import each other.

    python tools/arrows.py                      dovetail.spark
    python tools/arrows.py dovetail.operators   another package
    python tools/arrows.py -v                   with the imports behind every arrow

An import runs upwards if it goes against the layers that a contract in pyproject.toml declares for the package.
Imports inside functions and imports for type checking count as well.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]

Arrow = tuple[str, str]


def arrows(package: str) -> dict[Arrow, list[Arrow]]:
    """The arrows from part to part, with the imports behind each."""
    graph = grimp.build_graph(package.partition(".")[0])
    found: dict[Arrow, list[Arrow]] = defaultdict(list)
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            one, other = part_of(importer, package), part_of(imported, package)
            if one and other and one != other:
                found[one, other].append((importer, imported))
    return found


def part_of(module: str, package: str) -> str:
    """The direct child of the package that contains the module; empty if the module is not in the package."""
    inside = module.removeprefix(f"{package}.")
    return "" if inside == module else inside.partition(".")[0]


def declared_layers(package: str) -> dict[str, int]:
    """The layer of every part according to the contract of the package; 0 is the top."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if package in contract.get("containers", ()):
            layers = [layer.replace("|", ":").split(":") for layer in contract["layers"]]
            return {name.strip(" ()"): number for number, names in enumerate(layers) for name in names}
    return {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", nargs="?", default="dovetail.spark")
    parser.add_argument("-v", "--verbose", action="store_true", help="the imports behind every arrow")
    asked = parser.parse_args()
    found, layers = arrows(asked.package), declared_layers(asked.package)
    upwards = [arrow for arrow in found if set(arrow) <= layers.keys() and layers[arrow[0]] > layers[arrow[1]]]
    mutual = [arrow for arrow in found if arrow[::-1] in found and arrow[0] < arrow[1]]
    lines = [f"{asked.package}: {len({name for arrow in found for name in arrow})} rooms, {len(found)} arrows"]
    lines += [f"{len(upwards)} upwards", *(f"    {one} -> {other}" for one, other in sorted(upwards))]
    lines += [f"{len(mutual)} pairs import each other", *(f"    {one}, {other}" for one, other in sorted(mutual))]
    if asked.verbose:
        for arrow in sorted(found):
            lines += [" -> ".join(arrow), *(f"    {one} -> {other}" for one, other in sorted(found[arrow]))]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
