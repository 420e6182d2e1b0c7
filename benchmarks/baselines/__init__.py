"""Published structures for windowed stream inequality joins, tuple by tuple. Experiments compare Dovetail with them."""
