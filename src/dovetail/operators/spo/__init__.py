"""SPO-Join: windowed stream joins over a mutable part and immutable sorted parts."""
