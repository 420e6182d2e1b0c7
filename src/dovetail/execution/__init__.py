"""Ways to run an operator: the driver that all share, in process, and simulated."""

from dovetail.core.lazy import lazy_modules

__getattr__ = lazy_modules(__name__, "clocked")
