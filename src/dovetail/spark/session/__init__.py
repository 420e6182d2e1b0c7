"""The Spark session, its Java, its workers and its options."""
