"""Files of a run: the run folder and the reply cache that runs share."""

from __future__ import annotations

from agent.runs.store.cache import SqliteReplyCache
from agent.runs.store.run_folder import RunFolder
from agent.runs.store.run_view import RunView, load_run

__all__ = ["RunFolder", "RunView", "SqliteReplyCache", "load_run"]
