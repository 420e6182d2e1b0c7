"""Each left row of a DataFrame with its best partners: by the plan that suits the condition and the order.

as of       equal keys, the nearest time            Spark's own operators: one shuffle, the last right row seen
cells       everything else                         rows meet in cells; kernels in Python workers
by Spark    what only Spark evaluates               Spark's own join, and a window over the pairs
"""
