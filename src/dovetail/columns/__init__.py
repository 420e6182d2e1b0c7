"""Columns of every Arrow type: take rows, append, assemble, measure.

batches     whole record batches: assemble, slice, measure
taking      rows at given positions, from one batch or several inputs
scattering  rows of several batches combined into one
row_store   a batch that grows by appending
"""
