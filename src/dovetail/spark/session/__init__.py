"""The Spark session, its Java, its workers, their Python, and the directories that they share."""

from typing import TYPE_CHECKING

from dovetail.core.lazy import lazy_attributes

if TYPE_CHECKING:
    from dovetail.spark.session.session import local_session

__all__ = ["local_session"]

__getattr__ = lazy_attributes(__name__, modules=("daemon", "probe"), names={"local_session": "session"})
