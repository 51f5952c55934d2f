"""Generates listening events with realistic errors, and the catalogue of their songs.

The same arguments give the same bytes on any machine and with any number of processes: every file
has its own seed. This module is also a program that generates some of the files:

    python events.py DIRECTORY ROWS SONGS SEED FIRST_FILE STEP
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from array import array
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import chain
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    _Draw: TypeAlias = tuple[str, Sequence[tuple[int, str]]]

_FIRST_DAY = date(2026, 1, 1)
_MONTH_STARTS = (0, 31, 59, 90, 120, 151)  # January to June, as days from the first
_DAYS = 181
_DAY = 86_400
_HOUR = 3_600
_FRIDAY = 5

_FILES, _LEAST_IN_FILE, _MOST_IN_FILE = 8, 25_000, 500_000
_DRAWN_AT_ONCE = 50_000
_ALONE = 200_000  # below this, a second process costs more than it saves

# How busy the hours of a day are, from midnight on.
_EVERY_DAY = (
    *(3, 2, 1, 1, 1, 2, 5, 9, 10, 8, 7, 7),
    *(9, 8, 7, 8, 10, 13, 15, 16, 17, 16, 12, 7),
)
_AT_WEEKENDS = (
    *(8, 6, 4, 2, 1, 1, 2, 3, 5, 8, 11, 13),
    *(14, 14, 14, 14, 15, 15, 15, 16, 18, 20, 19, 14),
)
_SESSION_LENGTHS = (1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24)
_PAUSES = (0, 0, 0, 0, 1, 1, 2, 3, 5, 20, 240, 900)

# Of 256 events, _ODD have one of the _ODDITIES; those up to _REMEMBERED may be delivered again.
_ODD = 12
_REMEMBERED = 24
_ODDITIES = ("again", "again", "again", "corrected", "missing", "missing", "broken", "late", "slow")
_AGAIN_AFTER = (0, 5, 3_000)
_OFF_AT_MOST = {"slow": 5 * _DAY, "late": 40 * _DAY}
_TEXTS = ("listener", "song_id")
_RUBBISH = ("null", "Traceback (most recent call last):", "<html>502 Bad Gateway</html>")

_ARTISTS = (
    *("The Cedars", "Ada Quill", "Night Ferry", "Low Tide", "Marble Fox", "Juno Vale"),
    *("Paper Lanterns", "North of Here", "Ines Moreau", "Silver Thread", "Old Harbour"),
)
_FIRST_WORDS = (
    *("Amber", "Blue", "Cedar", "Distant", "Early", "Foreign", "Golden", "Hollow"),
    *("Inner", "Jade", "Kind", "Late", "Midnight", "Northern", "Open", "Paper"),
)
_LAST_WORDS = (
    *("Avenue", "Bells", "City", "Dawn", "Ember", "Fields", "Garden", "Harbour"),
    *("Island", "Junction", "Letters", "Mirror", "Orbit", "River", "Summer", "Window"),
)


class Song(NamedTuple):
    song_id: str
    title: str
    artist: str
    seconds: int


class Event(NamedTuple):
    """One listen. Times are seconds since the first day; ``seconds`` is the duration as text."""

    event_id: int
    listener: str
    song_id: str
    at: int
    received: int
    seconds: str


@dataclass(frozen=True, slots=True)
class Amount:
    """How much to generate, and from which seed."""

    rows: int
    songs: int
    seed: int

    @property
    def rows_per_file(self) -> int:
        return min(max(-(-self.rows // _FILES), _LEAST_IN_FILE), _MOST_IN_FILE)

    @property
    def files(self) -> int:
        return -(-self.rows // self.rows_per_file)

    @property
    def listeners(self) -> int:
        return self.rows // 150 + 1


def make_catalogue(amount: Amount) -> list[Song]:
    chance = _chance(amount, "catalogue")
    return [
        Song(
            f"s{number:05d}",
            f"{chance.choice(_FIRST_WORDS)} {chance.choice(_LAST_WORDS)}",
            chance.choice(_ARTISTS),
            chance.randint(120, 360),
        )
        for number in range(amount.songs)
    ]


def write_catalogue(file: Path, amount: Amount) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(song._asdict()) + "\n" for song in make_catalogue(amount))
    file.write_text("".join(lines))


def write_events(directory: Path, amount: Amount) -> None:
    """Write ``amount.rows`` lines into several files, on all processors.

    Raises ChildProcessError if one of the processes fails.
    """
    directory.mkdir(parents=True, exist_ok=True)
    processes = min(os.cpu_count() or 1, amount.files) if amount.rows > _ALONE else 1
    numbers = (directory, amount.rows, amount.songs, amount.seed)
    # This file is the program: it needs only the standard library, so it starts quickly.
    program = [sys.executable, "-I", __file__, *map(str, numbers)]
    others = [
        subprocess.Popen([*program, str(first), str(processes)]) for first in range(1, processes)
    ]
    try:
        _write_files(directory, amount, first=0, step=processes)
        codes = [process.wait() for process in others]
    finally:
        for process in others:
            process.kill()
            process.wait()
    if any(codes):
        raise ChildProcessError(f"generating events ended with exit codes {codes}")


def _write_files(directory: Path, amount: Amount, *, first: int, step: int) -> None:
    times = _Times.made()
    hits = _Hits.made(amount)
    for number in range(first, amount.files, step):
        lines = _Collector(amount, number, times, hits).lines()
        with (directory / f"part-{number:05d}.jsonl").open("w", encoding="ascii") as file:
            file.writelines(lines)


@dataclass(frozen=True, slots=True)
class _Times:
    """Lookup tables, faster than arithmetic: the text of every day and second, and busy hours."""

    days: Sequence[str]
    clock: Sequence[str]
    months: Sequence[int]
    busy_hours: Sequence[int]

    @classmethod
    def made(cls) -> _Times:
        late = _DAYS + 60
        days = [f"{_FIRST_DAY + timedelta(days=day)}T" for day in range(late)]
        clock = [
            f"{hour:02d}:{minute:02d}:{second:02d}"
            for hour in range(24)
            for minute in range(60)
            for second in range(60)
        ]
        months = [sum(day >= start for start in _MONTH_STARTS) - 1 for day in range(late)]
        busy_hours = [
            day * _DAY + hour * _HOUR
            for day in range(_DAYS - 1)  # the last one's evening would reach into July
            for hour, weight in enumerate(_AT_WEEKENDS if _is_weekend(day) else _EVERY_DAY)
            for _ in range(weight * (_DAYS + day) // 100)  # more listeners from month to month
        ]
        return cls(days, clock, months, busy_hours)

    def line(  # noqa: PLR0917 - called for every event: building a value would take time
        self, number: int, listener: str, song: str, at: int, received: int, seconds: str
    ) -> str:
        """An event as JSON. The json module would take three times as long."""
        days, clock = self.days, self.clock
        return (
            f'{{"event_id":{number},"listener":"{listener}","song_id":"{song}",'
            f'"at":"{days[at // _DAY]}{clock[at % _DAY]}",'
            f'"received":"{days[received // _DAY]}{clock[received % _DAY]}","seconds":{seconds}}}\n'
        )


@dataclass(frozen=True, slots=True)
class _Hits:
    """The listens of each month: 65,536 draws, each a song and 256 ways to listen to it."""

    by_month: Sequence[Sequence[_Draw]]

    @classmethod
    def made(cls, amount: Amount) -> _Hits:
        chance = _chance(amount, "hits")
        songs = make_catalogue(amount)
        ways = {length: _ways_to_listen(length) for length in {song.seconds for song in songs}}
        draws = [(song.song_id, ways[song.seconds]) for song in songs]
        moods = [chance.randint(20, 100) for _ in songs]
        by_month = []
        for _ in _MONTH_STARTS:
            moods = [max(5, mood + chance.randint(-30, 30)) for mood in moods]
            weights = [1_000 * mood // (rank + 4) + 1 for rank, mood in enumerate(moods)]
            total = sum(weights)
            shares = (
                [draw] * -(-weight * 65_536 // total)
                for draw, weight in zip(draws, weights, strict=True)
            )
            by_month.append(list(chain.from_iterable(shares))[:65_536])
        return cls(by_month)


class _Collector:
    """Generates the lines of one file, some of them with errors."""

    def __init__(self, amount: Amount, file: int, times: _Times, hits: _Hits) -> None:
        self._chance = _chance(amount, f"file {file}")
        self._numbers = range(amount.rows)[file * amount.rows_per_file :][: amount.rows_per_file]
        self._listeners = amount.listeners
        self._times = times
        self._hits = hits

    def lines(self) -> Iterator[str]:
        line, odd_line = self._times.line, self._odd_line
        earlier: Event | None = None
        listener, at, draws, left = self._session()
        for number, draw, way, delay, odd in self._draws():
            if not left:
                listener, at, draws, left = self._session()
            left -= 1
            song, ways = draws[draw]
            seconds, text = ways[way]
            received = at + seconds + delay % 60
            if odd < _ODD:
                event = Event(number, listener, song, at, received, text)
                yield odd_line(event, earlier or event)
            else:
                yield line(number, listener, song, at, received, text)
                if odd < _REMEMBERED:
                    earlier = Event(number, listener, song, at, received, text)
            at += seconds + _PAUSES[delay % len(_PAUSES)]

    def _draws(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Event numbers with random numbers for each, drawn for many events at once."""
        for start in range(0, len(self._numbers), _DRAWN_AT_ONCE):
            numbers = self._numbers[start : start + _DRAWN_AT_ONCE]
            songs = array("H", self._chance.randbytes(2 * len(numbers)))
            if sys.byteorder == "big":
                songs.byteswap()
            ways, delays, odds = (self._chance.randbytes(len(numbers)) for _ in range(3))
            yield from zip(numbers, songs, ways, delays, odds, strict=True)

    def _session(self) -> tuple[str, int, Sequence[_Draw], int]:
        """A session: its listener, start, songs to draw from, and number of songs."""
        chance, busy_hours = self._chance, self._times.busy_hours
        at = busy_hours[int(chance.random() * len(busy_hours))] + int(chance.random() * _HOUR)
        # The square makes some listeners far more active than others.
        listener = f"l{int(chance.random() ** 2 * self._listeners):07d}"
        draws = self._hits.by_month[self._times.months[at // _DAY]]
        return listener, at, draws, _SESSION_LENGTHS[chance.getrandbits(4)]

    def _odd_line(self, event: Event, earlier: Event) -> str:
        chance = self._chance
        kind = chance.choice(_ODDITIES)
        match kind:
            case "again" | "corrected":
                later = earlier.received + chance.choice(_AGAIN_AFTER)
                seconds = earlier.seconds if kind == "again" else f"{chance.randint(1, 300)}.5"
                return self._times.line(*earlier[:4], later, seconds)
            case "late" | "slow":
                received = event.received + chance.randrange(_OFF_AT_MOST[kind])
                return self._times.line(*event._replace(received=received))
            case "broken":
                whole = self._times.line(*event)
                half = whole[: chance.randrange(1, len(whole) - 2)]
                return f"{chance.choice((half, half, *_RUBBISH))}\n"
        fields = json.loads(self._times.line(*event))
        name = chance.choice(Event._fields)
        if chance.getrandbits(1):
            del fields[name]
        else:
            fields[name] = None if name in _TEXTS else "n/a"
        return json.dumps(fields) + "\n"


def _chance(amount: Amount, what: str) -> Random:
    return Random(f"{amount.seed} {what}")  # noqa: S311 - made-up data, not a secret


def _is_weekend(day: int) -> bool:
    return (_FIRST_DAY + timedelta(days=day)).isoweekday() > _FRIDAY


def _ways_to_listen(length: int) -> list[tuple[int, str]]:
    """256 durations: most of the whole song, some of a part, some of a few seconds."""
    partly = [length * share // 80 for share in range(1, 80)]
    hardly = [2 + share for share in range(24)]
    seconds = [*hardly, *partly, *[length] * (256 - len(partly) - len(hardly))]
    return [(whole, f"{whole}.{whole * 7 % 10}") for whole in seconds]


if __name__ == "__main__":
    _where, *_numbers = sys.argv[1:]
    _rows, _songs, _seed, _first, _step = map(int, _numbers)
    _write_files(Path(_where), Amount(_rows, _songs, _seed), first=_first, step=_step)
