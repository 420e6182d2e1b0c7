"""The seed of a run: another one each time, said in the header and with every failure; `pytest --seed N` has it again.

Random rows, schedules and choices come from `seeded` and `generator`, under a key of the test's own, so that they are
the same whatever else runs and in whichever order. What is judged by a statistic or a threshold keeps a fixed seed.
"""

from __future__ import annotations

import os
import random
import secrets

import numpy as np

VARIABLE = "DOVETAIL_TEST_SEED"
"""Where workers of pytest and programs that tests start find it."""

SEED = int(os.environ.setdefault(VARIABLE, str(secrets.randbelow(2**31))))


def seeded(*key: object) -> random.Random:
    return random.Random(_text(key))


def generator(*key: object) -> np.random.Generator:
    return np.random.default_rng(list(_text(key).encode()))


def _text(key: tuple[object, ...]) -> str:
    return " ".join(map(str, (SEED, *key)))
