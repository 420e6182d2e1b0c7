"""The seed of a run: new in each run, printed in the header and with every failure; `pytest --seed N` repeats a run.

Random rows, schedules and choices come from `seeded` and `generator` with a key per test, so that they do not depend on
which other tests run, or in which order. Tests of statistics or thresholds use a fixed seed.
"""

from __future__ import annotations

import os
import random
import secrets

import numpy as np

VARIABLE = "DOVETAIL_TEST_SEED"
"""Passes the seed to pytest's workers and to programs started by tests."""

SEED = int(os.environ.setdefault(VARIABLE, str(secrets.randbelow(2**31))))


def seeded(*key: object) -> random.Random:
    return random.Random(_text(key))


def generator(*key: object) -> np.random.Generator:
    return np.random.default_rng(list(_text(key).encode()))


def _text(key: tuple[object, ...]) -> str:
    return " ".join(map(str, (SEED, *key)))
