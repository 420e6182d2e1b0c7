import pytest

from dovetail.sources.protocol import cause_of


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("Stream removed. gRPC client debug context: UNAVAILABLE:Stream removed. Client context: OK", "Stream removed"),
        ("no such table. Detail: Python exception: Traceback (most recent call last):\n  File", "no such table"),
        ("division by zero\nCONTEXT:  SQL function", "division by zero"),
        ("\n  connection refused...\n", "connection refused"),
        ("", "OSError"),
    ],
)
def test_a_cause_is_one_line(message: str, cause: str) -> None:
    assert cause_of(OSError(message)) == cause
