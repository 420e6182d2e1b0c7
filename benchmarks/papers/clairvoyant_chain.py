"""The clairvoyant bound for MINER's chain of four: the most results any policy can find while rows still arrive.

    r1.a = r2.a AND r2.b = r3.b AND r3.c = r4.c        r2, r3: `rows` each, Zipf keys; r1, r4: every key once

Rows arrive in random order, on all inputs at the same rate, so that r1 and r4 have ended when a small part of r2 and r3
has arrived. Memory holds M rows. At time t, let C be the probability that the r1 partner of an arriving r2 row is held,
U(v) the number of held rows of r2 with b = v whose r1 partner is held, and W(v) of those whose partner has not arrived
(r3, r4: the same, by symmetry). Results are found at the rate

    2 rows C sum q(v) U(v)  +  2 sum W(v) U(v) / (time until r1 ends)

U(v) is at most rows q(v) t C, W(v) at most rows q(v) t (1 - share of r1 that has arrived). In each of these, and among
the keys of r1, more frequent values are worth more, so the best of each kind are held and only their numbers are free.
The best choice at every t, whatever was held before, integrated over t, is the bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

STEPS = 60  # time steps, before and after the short inputs have ended
GRID = 50  # number of choices for each size


def chain_bound(key_shares: ArrayLike, rows: int, memory_rows: float) -> float:
    """The largest share of all results that can be found online. `key_shares` are those of every Zipf attribute."""
    q = np.sort(np.asarray(key_shares, np.float64))[::-1]
    keys = np.arange(len(q) + 1)
    covered, squares = (np.concatenate([[0.0], np.cumsum(part)]) for part in (q, q * q))
    short = len(q) / rows  # the time at which r1 and r4 end
    found = 0.0
    for start, end in ((0.0, short), (short, 1.0)):
        for t in start + (np.arange(STEPS) + 0.5) / STEPS * (end - start):
            come = min(1.0, t / short)
            held_keys = np.linspace(0, min(len(q) * come, memory_rows / 2), GRID)[:, None]
            chance = come * np.interp(held_keys / come, keys, covered)
            room = memory_rows / 2 - held_keys
            most = np.maximum(rows * t * chance, 1e-9)
            complete = np.minimum(np.linspace(0, 1, GRID)[None, :] * room, most)
            values = np.interp(complete / most, covered, keys)
            rate = rows * chance * most * np.interp(values, keys, squares)
            if come < 1:
                most_waiting = rows * t * (1 - come)
                waiting = np.interp(np.minimum(room - complete, most_waiting) / most_waiting, covered, keys)
                rate += most_waiting * most * np.interp(np.minimum(values, waiting), keys, squares) / (short - t)
            found += 2 * float(rate.max()) * (end - start) / STEPS
    return found / (rows * rows * float(squares[-1]))
