"""The command-line process: `dovetail`, or `python -m dovetail.cli`."""

import sys

from dovetail.cli import main
from dovetail.cli.without_pandas import leave_out_pandas


def run() -> None:
    """Commands that join files start without importing pandas."""
    if sys.argv[1:2] in (["join"], ["explain"]):
        leave_out_pandas()
    main()


if __name__ == "__main__":
    run()
