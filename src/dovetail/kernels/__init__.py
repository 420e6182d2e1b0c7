"""Hot loops, compiled by Numba: arrays in, index pairs or counts out. The only place that imports numba."""
