"""How rows arrive: from tables, readers and remote sources, or by an arrival process on a clock."""

from dovetail.sources.feed import Retry
from dovetail.sources.protocol import Piece, Reading, Source

__all__ = ["Piece", "Reading", "Retry", "Source"]
