"""Which workflows may be on a branch, by the part of their input that the index shows."""

import pytest

from perago.adapters.conductor.active_workflows import (
    InputPattern,
    WorkflowSummary,
    correlation_of,
    innermost,
)
from perago.model.run import RunStatus

JAVA = "{workspace={repository=songs, branch=main, ref_type=commit, ref=A}, params={}}"
JSON = '{"workspace":{"repository":"songs","branch":"main","ref":"A"}}'


def hit(id_="w-1", shown=JAVA, parent=None):
    moment = "2026-11-16T04:21:22.226Z"
    return WorkflowSummary(id_, "songs", RunStatus.RUNNING, moment, moment, None, parent, shown)


@pytest.mark.parametrize("shown", [JAVA, JSON])
def test_an_input_that_names_the_branch_may_be_it_and_no_other_is(shown):
    assert InputPattern("songs", "main").may_match(hit(shown=shown))
    assert not InputPattern("songs", "mai").may_match(hit(shown=shown))
    assert not InputPattern("songs", "main2").may_match(hit(shown=shown))
    assert not InputPattern("song", "main").may_match(hit(shown=shown))
    assert not InputPattern("albums", "main").may_match(hit(shown=shown))


def test_the_order_of_the_fields_does_not_matter():
    assert InputPattern("songs", "main").may_match(hit(shown="{w={branch=main, repository=songs}}"))


@pytest.mark.parametrize("shown", ["", "{params={text=very long and then cut o"])
def test_an_input_that_is_not_shown_as_a_whole_may_be_any(shown):
    assert InputPattern("songs", "main").may_match(hit(shown=shown))


def test_a_name_that_texts_may_spell_differently_is_looked_up():
    assert InputPattern("songs", "grün/x").may_match(hit(shown="{repository=songs, branch=gr?n/x}"))


def test_a_workflow_that_waits_for_its_sub_workflow_is_not_the_one_that_writes():
    above, below = hit("above"), hit("below", parent="above")
    assert innermost([above, below]) == [below]
    assert innermost([above, hit("other")]) == [above, hit("other")]


def test_a_mark_has_no_character_that_a_query_could_stumble_over():
    assert correlation_of("songs", "main") == "perago:songs/main"
    mark = correlation_of("my 'songs'", "a/b, c AND (d) *")
    assert not set("' ,()*").intersection(mark)
    assert mark != correlation_of("my 'songs'/a", "b, c AND (d) *")
