"""What went wrong, in one line."""

from __future__ import annotations

import re

NOISE = re.compile(r"\.? (Detail: Python exception|gRPC client debug context|Client context):.*")
"""What gRPC adds to what a server said."""


def cause_of(error: BaseException) -> str:
    """The first line of an error's message, without a full stop; its kind where it says nothing."""
    first, *_ = [*str(error).strip().splitlines(), ""]
    return NOISE.sub("", first).rstrip(". ") or type(error).__name__
