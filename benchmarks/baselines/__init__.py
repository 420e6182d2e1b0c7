"""Published structures for windowed stream inequality joins, tuple by tuple: what experiments compare Dovetail with."""
