"""Formats numbers, sizes, shares and times in few characters, the same way in every view of a run."""

from __future__ import annotations


def short(number: float, *, trim: bool = False) -> str:
    """A number in at most five characters: 999, 1.20k, 45.6M. `trim` drops trailing zeros: 1.2k."""
    digits, unit = _scale(number)
    return (_trim(digits) if trim else digits) + unit


def format_bytes(nbytes: int) -> str:
    """600 kB, 2 MB, 1.5 GB."""
    digits, unit = _scale(nbytes)
    return f"{_trim(digits)} {unit}B"


def format_share(share: float, digits: int = 0) -> str:
    """27 %."""
    return f"{100 * share:.{digits}f} %"


def format_seconds(seconds: float) -> str:
    """0.2 s, 15 s, 2:30."""
    return clock_time(seconds) if seconds >= 120 else f"{seconds:.3g} s"


def clock_time(seconds: float) -> str:
    """0:07, 12:34, 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _scale(number: float) -> tuple[str, str]:
    size, unit = float(number), ""
    for larger in "kMGT":
        if size < 999.5:
            break
        size, unit = size / 1000, larger
    digits = 0 if not unit and size == int(size) else 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{size:.{digits}f}", unit


def _trim(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits
