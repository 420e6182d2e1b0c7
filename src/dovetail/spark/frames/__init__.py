"""DataFrames as inputs: schemas, conditions given as Columns, samples."""
