"""The command as a process: `dovetail`, or `python -m dovetail.cli`."""

import sys

from dovetail.cli import main
from dovetail.cli.without_pandas import leave_out_pandas


def run() -> None:
    """What joins files starts without pandas."""
    if sys.argv[1:2] in (["join"], ["explain"]):
        leave_out_pandas()
    main()


if __name__ == "__main__":
    run()
