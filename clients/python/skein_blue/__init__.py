"""A client of skein: sets, rankings, records and changes.

    from skein_blue import Skein

    skein = Skein("http://127.0.0.1:3210")
    for did in skein.members(f"intersect(followers({a}), followers({b}))"):
        ...

AsyncSkein has the same methods for asyncio.
"""

from . import methods
from .aio import AsyncPages, AsyncSkein
from .core import Count, IncompleteWarning, SkeinError, WatchChange
from .methods import *  # noqa: F401,F403
from .sync import Pages, Skein

__all__ = ["AsyncPages", "AsyncSkein", "Count", "IncompleteWarning", "Pages", "Skein", "SkeinError", "WatchChange"]
__all__ += methods.__all__
