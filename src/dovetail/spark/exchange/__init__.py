"""How rows travel between Spark and Python, and into files."""
