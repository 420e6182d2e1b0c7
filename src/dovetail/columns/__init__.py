"""Columns of every Arrow type: taken from, appended to, put together, measured.

batches     batches as wholes: made of columns, cut, put together
taking      rows at given positions, of one batch or of several inputs
scattering  rows of several batches in one
row_store   batches appended to one that grows
"""
