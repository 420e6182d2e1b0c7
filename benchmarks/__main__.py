"""python -m benchmarks [name …]: the same as `dovetail bench [name …]`."""

from __future__ import annotations

import sys

from dovetail.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "bench")
    main()
