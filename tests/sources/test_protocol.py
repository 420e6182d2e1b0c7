import pyarrow as pa
import pytest

from dovetail.errors import InputError
from dovetail.sources.protocol import as_input, cause_of


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


def test_what_a_source_lacks_is_said() -> None:
    class Feed:
        name = "feed"
        schema = pa.schema([("id", pa.int64())])

        def open(self, position: object = None) -> object: ...

    with pytest.raises(InputError, match=r"Feed has schema and open, as .* but no resumable \(True or False\)"):
        as_input(Feed())
