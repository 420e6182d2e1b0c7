"""Joins each left row of a DataFrame with its best partners. The condition and the order decide on the plan:

as of       equal keys, the nearest time            Spark's own operators: one shuffle, the last right row seen
cells       everything else                         rows are routed to cells; kernels in Python workers
by Spark    what only Spark evaluates               Spark's own join, and a window over the pairs
"""
