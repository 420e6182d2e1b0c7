"""Names from other libraries: arguments of their joins that have no counterpart here, and what to write instead.

Covers pandas' `merge`, Polars' `join`, Spark's `DataFrame.join` and SQL in DuckDB. Arguments with the same meaning here
are options (options.py). These are answered by an error.
"""

from __future__ import annotations

BOTH_NAMES = "left_on= and right_on= take names of columns"
ORDER = "Rows of a join have no order here: sort the result"
TIME_JOIN = "For the nearest row in time, write dovetail.asof(left, right, on='ts')"
INDEX = "An index level with a name is a column here: df.rename_axis('id'), then on='id' or left_on='id'"

ARGUMENTS: dict[str, str] = {
    # pandas
    "left_index": INDEX,
    "right_index": INDEX,
    "sort": ORDER,
    "copy": "Leave it out: inputs are never changed",
    "lsuffix": "Write suffixes=('_l', '_r')",
    "rsuffix": "Write suffix='_r', or suffixes=('_l', '_r')",
    "left_by": 'Add an equality to the condition: on="l.symbol = r.ticker AND …"',
    "right_by": 'Add an equality to the condition: on="l.symbol = r.ticker AND …"',
    "direction": TIME_JOIN,
    "allow_exact_matches": "Write < in place of <= in the condition, or > in place of >=",
    # Polars
    "other": "The second input is right=",
    "maintain_order": ORDER,
    "coalesce": "on='id' gives the column once; on='l.id = r.id' gives those of both inputs",
    "nulls_equal": "Write IS NOT DISTINCT FROM (or <=>) in place of = in the condition: on='l.id <=> r.id'",
    "join_nulls": "Write IS NOT DISTINCT FROM (or <=>) in place of = in the condition: on='l.id <=> r.id'",
    "allow_parallel": "Write threads=, the number of threads",
    "force_parallel": "Write threads=, the number of threads",
    "strategy": TIME_JOIN,
    "by_left": 'Add an equality to the condition: on="l.symbol = r.ticker AND …"',
    "by_right": 'Add an equality to the condition: on="l.symbol = r.ticker AND …"',
    # SQL and others
    "using": "Write on='id', or on=['id', 'day']",
    "condition": "Write on=",
    "predicate": "Write on=",
    "on_left": BOTH_NAMES,
    "on_right": BOTH_NAMES,
    "join_type": "Write how=",
    "type": "Write how=",
    "where": "Write filters of an input into the condition: on='l.id = r.id AND l.amount > 10'",
    "filter": "Write filters of an input into the condition: on='l.id = r.id AND l.amount > 10'",
    "groupby": "Write by=",
    "group_by": "Write by=",
    "agg": "Write aggregates={'n': 'count(*)'}",
    "broadcast": "Leave it out: what is small is found by a sample",
    "num_partitions": "Write cells=",
    "n_jobs": "Write threads=",
    "num_threads": "Write threads=",
    "memory_limit": "Write memory=",
}
"""Arguments of other libraries: what to write here, without a full stop."""

JOIN_TYPES: dict[str, str] = {
    "cross": "For all pairs, leave out on=, or set on='true'",
    "outer_coalesce": "Write how='full', with on='id' for one column of each name",
    "right_semi": "Swap the inputs and write how='left_semi'",
    "right_anti": "Swap the inputs and write how='left_anti'",
    "asof": TIME_JOIN,
    "natural": "Name the columns: on=['id', 'day']",
    "positional": "Number the rows of both inputs, and join on the number",
    "lateral": "Write what depends on the left row into the condition",
    "existence": "Write how='left', indicator=True",
    "mark": "Write how='left', indicator=True",
}
"""Join types of other libraries: what to write here, without a full stop."""

METHODS: dict[str, str] = {
    "merge": "join, which takes the arguments of merge",
    "merge_asof": "asof",
    "join_asof": "asof",
    "join_where": "join, with the conditions as a list",
    "crossJoin": "join, with how='cross'",
    "cross_join": "join, with how='cross'",
    "sql": "dovetail.sql",
    "group_by": "aggregate, with by=",
    "groupby": "aggregate, with by=",
    "agg": "aggregate",
}
"""Functions and methods of other libraries: what to write here, without a full stop."""
