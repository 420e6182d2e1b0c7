"""Hot loops compiled by Numba: arrays in, index pairs or counts out. The only package that imports numba."""
