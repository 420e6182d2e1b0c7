"""Range joins as plans of Spark's own operators: no row leaves the JVM, and workers need no packages."""
