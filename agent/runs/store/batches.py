"""Stores a run's batches and requests. Each request is waiting, sent, failed or answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from agent.runs.store.database import Database
from agent.types import Usage


class Batch(NamedTuple):
    """A batch in progress.

    `id` is None until the server has confirmed the batch. `expected` contains the estimated tokens and
    cost of the batch.
    """

    token: str
    model: str
    id: str | None
    created: float
    requests: int
    expected: Usage


class BatchStore(Database):
    """Stores the batches of a run and the requests in them, so that no request is sent twice after a restart.

    Requests are stored under their cache keys. A request that has a body but no batch is waiting to be sent. `problem`
    is the reason why a request failed. `usage` contains the tokens and the cost of the reply.

    Raises (constructor and methods):
        RunFolderError: the file is damaged or belongs to another program.
        StorageError: the file cannot be written.
    """

    application_id = 0x74646162  # "tdab"
    tables = """
        CREATE TABLE requests (
            number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, model TEXT NOT NULL, body BLOB, batch TEXT,
            attempts INTEGER NOT NULL DEFAULT 0, problem TEXT, usage TEXT
        );
        CREATE INDEX waiting ON requests (model) WHERE body IS NOT NULL AND batch IS NULL;
        CREATE INDEX sent ON requests (batch) WHERE batch IS NOT NULL;
        CREATE TABLE batches (
            token TEXT PRIMARY KEY, model TEXT NOT NULL, id TEXT, created REAL NOT NULL, requests INTEGER NOT NULL,
            expected TEXT NOT NULL
        )
    """
    remedy = "Delete it. The requests in the recorded batches will be sent and charged again."

    def begin(self, *, retry_errors: bool) -> None:
        """Discard the waiting requests of an earlier session. With `retry_errors`, also reset failed requests."""
        self.execute("UPDATE requests SET body = NULL WHERE batch IS NULL AND body IS NOT NULL")
        if retry_errors:
            self.execute("UPDATE requests SET attempts = 0, problem = NULL WHERE problem IS NOT NULL")

    def add(self, key: str, model: str, line: Callable[[], bytes], max_attempts: int) -> str | None:
        """Queue a request unless it is already queued or sent, or has failed `max_attempts` times.

        Returns the recorded problem if the request has failed `max_attempts` times, and otherwise None.
        """
        is_pending, attempts, problem = self._fetch_row(
            "SELECT body IS NOT NULL OR batch IS NOT NULL, attempts, problem FROM requests WHERE key = ?", key
        ) or (0, 0, None)
        if not is_pending and attempts < max_attempts:
            self.execute(
                "INSERT INTO requests (key, model, body) VALUES (?, ?, ?) "
                "ON CONFLICT (key) DO UPDATE SET model = excluded.model, body = excluded.body",
                (key, model, line()),
            )
            return None
        return None if is_pending else problem

    def iterate_waiting(self, model: str, requests: int, size: int) -> Iterable[tuple[int, bytes]]:
        """Iterate over a model's waiting requests as (number, line), up to `requests` lines and `size` bytes."""
        query = "SELECT number, body FROM requests WHERE model = ? AND body IS NOT NULL AND batch IS NULL "
        for number, line in self.iterate(query + "ORDER BY number LIMIT ?", (model, requests)):
            if (size := size - len(line)) < 0:
                return
            yield number, line

    def has_waiting(self) -> bool:
        """Return whether any request is waiting."""
        return self._fetch_row("SELECT 1 FROM requests WHERE body IS NOT NULL AND batch IS NULL LIMIT 1") is not None

    def create(self, batch: Batch, last: int) -> None:
        """Record a batch of a model's waiting requests up to number `last`. The caller sends the batch afterwards."""
        with self.transaction() as database:
            database.execute(
                "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?)", (*batch[:5], batch.expected.model_dump_json())
            )
            database.execute(
                "UPDATE requests SET batch = ? WHERE model = ? AND number <= ? AND body IS NOT NULL AND batch IS NULL",
                (batch.token, batch.model, last),
            )

    def set_batch_id(self, token: str, batch_id: str) -> None:
        """Record the id that the server assigned to a batch."""
        self.execute("UPDATE batches SET id = ? WHERE token = ?", (batch_id, token))

    def discard_bodies(self, token: str) -> None:
        """Discard the request bodies of a batch that the server has accepted."""
        self.execute("UPDATE requests SET body = NULL WHERE batch = ? AND body IS NOT NULL", (token,))

    def list_batches(self) -> list[Batch]:
        """Return the batches in progress, oldest first."""
        return [
            Batch._make((*row[:5], Usage.model_validate_json(row[5])))
            for row in self.execute("SELECT * FROM batches ORDER BY created")
        ]

    def record_reply(self, key: str, usage: Usage) -> None:
        """Record the usage of the reply to a request."""
        self.execute(
            "UPDATE requests SET usage = ?, problem = NULL, attempts = 0, batch = NULL WHERE key = ?",
            (usage.model_dump_json(), key),
        )

    def record_usage_once(self, key: str, usage: Usage) -> bool:
        """Record the usage of a reply unless one is already recorded. Return whether this call recorded it."""
        rows = self.execute(
            "INSERT INTO requests (key, model, usage) VALUES (?, '', ?) "
            "ON CONFLICT (key) DO UPDATE SET usage = excluded.usage WHERE usage IS NULL RETURNING 1",
            (key, usage.model_dump_json()),
        )
        return bool(rows)

    def record_failure(self, key: str, problem: str, attempts: int) -> None:
        """Record why a request failed and add `attempts` to its number of failed attempts."""
        self.execute(
            "UPDATE requests SET problem = ?, attempts = attempts + ?, batch = NULL WHERE key = ?",
            (problem, attempts, key),
        )

    def end(self, token: str, lost: str | None = None) -> int:
        """Remove a batch, and return how many of its requests have no result.

        If `lost` is set, record it as the problem of these requests, and add one failed attempt to each of them.
        """
        with self.transaction() as database:
            database.execute("DELETE FROM batches WHERE token = ?", (token,))
            return database.execute(
                "UPDATE requests SET problem = coalesce(?, problem), attempts = attempts + ?, batch = NULL "
                "WHERE batch = ?",
                (lost, lost is not None, token),
            ).rowcount

    def contains(self, token: str, key: str) -> bool:
        """Return whether a request is in a batch."""
        return self._fetch_row("SELECT 1 FROM requests WHERE key = ? AND batch = ?", key, token) is not None

    def get_usage(self, key: str) -> Usage:
        """Return the usage of the reply to a request, or zero usage if it is unknown."""
        row = self._fetch_row("SELECT usage FROM requests WHERE key = ? AND usage IS NOT NULL", key)
        return Usage() if row is None else Usage.model_validate_json(row[0])

    def average_output_tokens(self, model: str) -> float | None:
        """Return the mean number of output tokens of a model's replies, or None if there are no replies."""
        query = "SELECT avg(json_extract(usage, '$.output_tokens')) FROM requests WHERE model = ?"
        mean: float | None = self.execute(query, (model,))[0][0]
        return mean

    def _fetch_row(self, query: str, *values: object) -> tuple[Any, ...] | None:
        return next(iter(self.execute(query, values)), None)
