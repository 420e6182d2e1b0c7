"""Checks the claims of all or some papers in parallel processes, and compares the verdicts with a file.

    python -m benchmarks.papers [diner|miner|rpj|diag|pmj|spo …] --scale ci|small|paper [--seeds N] [--counted]

For each claim, `expected.toml` has the verdict and the settings that fail, with the reason. A run fails if the outcome
differs: a change of a verdict has to be explained there.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.papers.registry import PAPERS, claims, experiment_of, experiments
from benchmarks.papers.report import write_report
from benchmarks.papers.scale import SCALES, Scale
from benchmarks.papers.verdicts import Finding, Verdict
from dovetail.errors import InputError

EXPECTED = Path(__file__).with_name("expected.toml")
ENOUGH_SEEDS = 5
COLOURS = {
    Verdict.REPRODUCED: "green",
    Verdict.DIRECTION: "cyan",
    Verdict.CONDITIONAL: "yellow",
    Verdict.CONTRADICTED: "red",
    Verdict.NOT_REPRODUCIBLE: "magenta",
}
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Expected:
    verdict: str
    fails: tuple[str, ...]
    why: str


def read_expected(scale: Scale, file: Path = EXPECTED) -> dict[str, Expected]:
    """The expected verdicts by claim. Expectations for five seeds or for one scale are in tables of their own."""
    found = {}
    for name, fields in tomllib.loads(file.read_text()).items():
        own = fields.get(scale.name, {})
        if scale.seed_count >= ENOUGH_SEEDS:
            own = fields.get("five_seeds", {}) | own
        found[name] = Expected(
            own.get("verdict", fields["verdict"]),
            tuple(own.get("fails", fields.get("fails", ()))),
            fields.get("why", ""),
        )
    return found


def compare(findings: Sequence[Finding], expected: dict[str, Expected]) -> list[str]:
    """The differences from the expected verdicts; the gate passes if there are none."""
    changes = []
    for finding in findings:
        wanted = expected.get(finding.claim)
        if wanted is None:
            changes.append(f"{finding.claim}: {finding.verdict}; expected.toml does not have it.")
            continue
        should_fail = set(wanted.fails) & set(finding.tried)
        new, gone = sorted(set(finding.fails) - should_fail), sorted(should_fail - set(finding.fails))
        if finding.verdict != wanted.verdict:
            changes.append(f"{finding.claim}: {finding.verdict}, expected {wanted.verdict}.")
        changes += [f"{finding.claim}: does not hold any more: {part}." for part in new]
        changes += [f"{finding.claim}: holds now: {part}." for part in gone]
    return changes


def papers(
    names: Sequence[str],
    scale: str,
    console: Console,
    report: Path | None = None,
    json_file: Path | None = None,
    workers: int | None = None,
    counted: bool = False,
    seeds: int | None = None,
) -> bool:
    """Check the claims; with `counted`, only those that do not depend on other loads. True if all are as expected."""
    for given, known in ((names, PAPERS), ([scale], SCALES)):
        unknown = [name for name in given if name not in known]
        if unknown:
            raise InputError(f"{', '.join(unknown)}: there are {', '.join(known)}.")
    started = time.perf_counter()
    size = replace(SCALES[scale], with_shares=report is not None or json_file is not None)
    if seeds is not None:
        size = replace(size, seed_count=seeds)
    findings = run_all(tuple(names) or tuple(PAPERS), size, console, workers, counted)
    print_findings(console, findings)
    expected = read_expected(size)
    changes = compare(findings, expected)
    if json_file is not None:
        fields = {"scale": scale, "seeds": size.seed_count, "findings": [finding.to_json() for finding in findings]}
        json_file.write_text(json.dumps(fields, indent=1) + "\n")
    if report is not None:
        write_report(report, findings, scale, {name: each.why for name, each in expected.items()})
        console.print(f"report in {report}", highlight=False, soft_wrap=True)
    for change in changes:
        console.print(f"[bold red]changed[/] {change}", highlight=False, soft_wrap=True)
    console.print(
        f"{len(findings)} claims at scale {scale} in {time.perf_counter() - started:.0f} s: "
        + (f"{len(changes)} changes" if changes else "all as expected"),
        highlight=False,
    )
    return not changes


def run_all(
    names: tuple[str, ...], scale: Scale, console: Console, workers: int | None = None, counted: bool = False
) -> list[Finding]:
    """The findings in the order of the claims; by default on one process per core."""
    todo = [each for each in experiments(names) if not (counted and each.timed)]
    workers = workers or len(os.sched_getaffinity(0))
    found: dict[str, Finding] = {}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool, console.status("") as status:
        in_line = sorted(todo, key=lambda each: not each.long)
        running = {pool.submit(try_experiment, each.module, each.name, scale): each for each in in_line}
        for done in as_completed(running):
            each = running[done]
            seconds, listed = done.result()
            found |= {finding.claim: finding for finding in map(Finding.from_json, listed)}
            missing = set(each.claims) - set(found)
            if missing:
                raise AssertionError(f"{each.module}.{each.name} gives nothing for {', '.join(missing)}")
            console.print(
                f"{each.module}.{each.name}: {', '.join(each.claims)} in {seconds:.0f} s", highlight=False, style="dim"
            )
            status.update(f"{len(found)} claims")
    return [found[name] for name in claims() if name in found]


def try_experiment(module: str, name: str, scale: Scale) -> tuple[float, list[dict[str, Any]]]:
    """Run an experiment in a separate process. Returns CPU seconds and the findings."""
    if Path("/dev/shm").is_dir():
        tempfile.tempdir = "/dev/shm"  # many small blocks: only their number matters
    started = time.process_time()
    found = [finding.to_json() for finding in experiment_of(module, name).run(scale)]
    return time.process_time() - started, found


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    table = Table(box=SIMPLE_HEAD)
    for name in ("claim", "source", "in print", "verdict", "here"):
        table.add_column(name, overflow="fold", no_wrap=name == "claim")
    known = claims()
    for finding in findings:
        claim, colour = known[finding.claim], COLOURS[finding.verdict]
        here = [f"{'✓' if part.holds else '✗'} {part.when}: {part.here}" for part in finding.parts]
        here += [f"{'✓' if part.holds else '✗'} size: {part.when}: {part.here}" for part in finding.sizes]
        here += [f"size not judged: {finding.unsized}"] * bool(finding.unsized)
        here += [f"({'✓' if part.holds else '✗'} {part.when}: {part.here})" for part in finding.guards]
        verdict = f"[{colour}]{finding.verdict}[/]"
        table.add_row(
            finding.claim,
            claim.source,
            claim.printed,
            verdict,
            "\n".join([*here, *([finding.missing] if finding.missing else [])]),
        )
    console.print(table)
