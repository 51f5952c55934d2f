"""The songs pipeline's numbers once more: SQL straight on the raw lines, by another engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    from pathlib import Path

_READ = """
CREATE TABLE lines AS
    SELECT unnest(string_split(rtrim(content, chr(10)), chr(10))) AS line
    FROM read_text('{raw}/*.jsonl');
CREATE TABLE fields AS
    SELECT TRY_CAST(j ->> 'event_id' AS BIGINT) AS event_id,
           j ->> 'listener' AS listener, j ->> 'song_id' AS song_id,
           TRY_CAST(j ->> 'at' AS TIMESTAMP) AS "at",
           TRY_CAST(j ->> 'received' AS TIMESTAMP) AS received,
           TRY_CAST(j ->> 'seconds' AS DOUBLE) AS seconds
    FROM (SELECT CASE WHEN json_valid(line) THEN line::JSON END AS j FROM lines);
CREATE TABLE whole AS
    SELECT *, row_number() OVER (PARTITION BY event_id
                                 ORDER BY received, "at", listener, song_id, seconds) AS delivery
    FROM fields
    WHERE event_id IS NOT NULL AND listener IS NOT NULL AND song_id IS NOT NULL
      AND "at" IS NOT NULL AND received IS NOT NULL AND seconds IS NOT NULL;
CREATE TABLE kept AS
    SELECT *, strftime("at", '%Y-%m') AS month FROM whole
    WHERE delivery = 1 AND seconds >= {min_seconds}
      AND received <= "at" + INTERVAL '{max_days_late} days';
CREATE TABLE catalogue AS SELECT * FROM read_json('{catalogue}', format = 'newline_delimited');
"""
_FATES = """
SELECT (SELECT count(*) FROM kept) AS kept,
       (SELECT count(*) FROM whole WHERE delivery = 1 AND seconds < {min_seconds}) AS too_short,
       (SELECT count(*) FROM whole WHERE delivery = 1 AND seconds >= {min_seconds}
           AND received > "at" + INTERVAL '{max_days_late} days') AS late,
       (SELECT count(*) FROM whole WHERE delivery > 1) AS duplicate,
       (SELECT count(*) FROM fields) - (SELECT count(*) FROM whole) AS broken
"""
# A session begins where no listen of the same person lies in the half hour before. Written with
# NOT EXISTS on purpose: the pipeline does it with a window.
_RANKING = """
WITH opening AS (
    SELECT event_id FROM kept k WHERE NOT EXISTS (
        SELECT 1 FROM kept b
        WHERE b.listener = k.listener AND (b."at", b.event_id) < (k."at", k.event_id)
          AND b."at" >= k."at" - INTERVAL '30 minutes')),
counted AS (
    SELECT month, song_id, count(*) AS listens, count(opening.event_id) AS sessions,
           sum(round(seconds)::BIGINT)::BIGINT AS seconds
    FROM kept LEFT JOIN opening USING (event_id) GROUP BY ALL)
SELECT month,
       row_number() OVER (PARTITION BY month ORDER BY listens DESC, song_id) AS place,
       song_id, title, artist, listens, sessions, counted.seconds
FROM counted JOIN catalogue USING (song_id) ORDER BY month, place
"""
_HOURS = """
SELECT isodow("at") - 1 AS weekday, hour("at") AS hour, count(*) AS listens
FROM kept GROUP BY ALL ORDER BY ALL
"""


class SongsInSql:
    """Reads ``raw/`` and ``catalogue/`` below a directory when made; then answers questions."""

    def __init__(self, directory: Path, *, min_seconds: float, max_days_late: int) -> None:
        self._values = {
            "raw": directory / "raw",
            "catalogue": directory / "catalogue" / "songs.jsonl",
            "min_seconds": min_seconds,
            "max_days_late": max_days_late,
        }
        self._database = duckdb.connect()
        self._database.execute(_READ.format(**self._values))

    def fates(self) -> dict[str, int]:
        return self._rows(_FATES)[0]

    def ranking(self) -> list[dict[str, Any]]:
        return self._rows(_RANKING)

    def hours(self) -> list[dict[str, Any]]:
        return self._rows(_HOURS)

    def close(self) -> None:
        self._database.close()

    def _rows(self, query: str) -> list[dict[str, Any]]:
        found = self._database.execute(query.format(**self._values))
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
