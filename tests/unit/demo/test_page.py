import re

from perago.demo.songs.page import render_report

SONG = {"song_id": "s1", "title": "Tom & <Jerry>", "artist": "A 'B'", "listens": 40}
MONTHS = [
    {"month": "2026-01", "listens": 30, "sessions": 3, "seconds": 7_200},
    {"month": "2026-02", "listens": 10, "sessions": 2, "seconds": 3_600},
]
PLACES = [SONG | {"month": month["month"], "place": 1} for month in MONTHS]
HOURS = [{"weekday": 6, "hour": 23, "listens": 40}]
FATES = {"kept": 40, "too_short": 5, "late": 0, "duplicate": 4, "broken": 1}


def page(**values):
    return render_report(
        "Songs & more",
        **{
            "fates": FATES,
            "songs": [SONG],
            "places": PLACES,
            "months": MONTHS,
            "hours": HOURS,
            **values,
        },
    )


def test_it_shows_the_numbers():
    text = page()
    assert "<b>50</b>listening events" in text
    assert "<b>8.0</b>listens in a session" in text
    assert "<b>3</b>hours of music" in text
    assert "<b>5</b> too short <small>10.0%</small>" in text
    assert "Sun 23:00: 40" in text


def test_text_is_escaped():
    text = page()
    assert "<title>Songs &amp; more</title>" in text
    assert "Tom &amp; &lt;Jerry&gt;" in text
    assert "<Jerry>" not in text


def test_it_loads_nothing_from_anywhere():
    assert not re.search(r"https?:|src=|href=|url\(|@import|<script", page())


def test_nothing_to_count_is_a_page_too():
    empty = dict.fromkeys(("songs", "places", "months", "hours"), ())
    assert "Nothing to count" in page(fates=dict.fromkeys(FATES, 0), **empty)


def test_two_songs_of_one_title_are_two_lines():
    twin = SONG | {"song_id": "s2", "listens": 1}
    twins = [twin | {"month": month["month"], "place": 2} for month in MONTHS]
    assert page(songs=[SONG, twin], places=PLACES + twins).count("<line ") == 2
