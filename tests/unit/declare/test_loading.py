"""Modules as commands and worker processes find them."""

import sys
from textwrap import dedent

import pytest

from perago import TaskDefinitionError
from perago.declare.loading import find_task, load_module, load_pipeline, tasks_of

MODULE = """
from pydantic import BaseModel
from perago import pipeline, task

class Nothing(BaseModel):
    pass

@task(name="{name}.first", owner_email="a@example.com")
def first(params: Nothing) -> Nothing:
    return params

def make():
    @task(name="{name}.nested", owner_email="a@example.com")
    def nested(params: Nothing) -> Nothing:
        return params
    return nested

chain = pipeline("chain", [first])
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A current directory of its own, and no trace of its modules afterwards."""
    here = tmp_path / "project"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    before = set(sys.modules)
    yield here
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path, text, **names):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text).format(**names) if names else dedent(text))


def test_a_module_is_found_from_the_current_directory_by_name_and_by_path(project):
    write(project / "jobs" / "radio.py", MODULE, name="radio")
    assert load_module("jobs.radio") is load_module("jobs/radio.py")


def test_a_pipeline_is_named_by_module_and_attribute(project):
    write(project / "radio.py", MODULE, name="radio")
    assert load_pipeline("radio:chain").target == "radio:chain"
    assert load_pipeline("radio.py:chain").target == "radio:chain"


def test_the_attribute_may_be_left_out_where_there_is_only_one_pipeline(project):
    write(project / "radio.py", MODULE, name="radio")
    assert load_pipeline("radio").target == "radio:chain"


def test_a_file_elsewhere_is_named_by_its_path_and_may_import_its_neighbours(project):
    elsewhere = project.parent / "elsewhere"
    write(elsewhere / "faraway.py", "import neighbour\n" + MODULE, name="faraway")
    write(elsewhere / "neighbour.py", "")
    loaded = load_pipeline("../elsewhere/faraway.py:chain")
    assert loaded.target == f"{elsewhere / 'faraway.py'}:chain"
    assert load_pipeline(loaded.target).name == "chain"


@pytest.mark.parametrize(
    ("target", "message", "fix"),
    [
        ("nowhere", "no module 'nowhere'", "a path that ends in .py"),
        ("nowhere.py", "no file 'nowhere.py'", "check the path"),
        ("radio:chian", "no pipeline 'chian'", "did you mean 'chain'?"),
        ("radio:first", "no pipeline 'first'", "known: chain"),
        ("empty", "has 0 pipelines", "declare one"),
        ("two", "has 2 pipelines", "two:chain, two:other"),
        ("two-words.py", "'two-words' is not a Python name", "two_words.py"),
        ("local_only", "declared inside a function", "move nested to the top level of radio"),
    ],
)
def test_what_can_not_be_loaded_says_what_there_is(project, target, message, fix):
    write(project / "radio.py", MODULE, name="radio")
    write(project / "empty.py", "")
    write(project / "two.py", "from radio import chain\nother = chain\n")
    write(project / "two-words.py", "")
    write(
        project / "local_only.py",
        "import radio\nfrom perago import pipeline\nc = pipeline('c', [radio.make()])\n",
    )
    with pytest.raises(TaskDefinitionError) as refused:
        load_pipeline(target)
    assert message in refused.value.message
    assert fix in refused.value.fix


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x = 1 / 0", "raised ZeroDivisionError: division by zero"),
        ("def broken(:", "invalid syntax"),
        ("raise SystemExit(3)", "raised SystemExit: 3"),
        ("import nobody_has_this", "No module named 'nobody_has_this'"),
        ("from perago import RetryPolicy; RetryPolicy(count=99)", "count can't be 99"),
    ],
)
def test_an_error_in_a_module_names_the_line_it_is_on(project, line, message):
    write(project / "wrong.py", f"import sys\n\n{line}\n")
    with pytest.raises(TaskDefinitionError) as refused:
        load_module("wrong")
    assert refused.value.message.startswith("wrong.py:3: ")
    assert message in refused.value.message


def test_an_error_in_an_imported_module_names_that_ones_line(project):
    write(project / "inner.py", "\n\n\nboom()\n")
    write(project / "outer.py", "import inner\n")
    with pytest.raises(TaskDefinitionError, match=r"^inner\.py:4: "):
        load_module("outer")


def test_a_file_whose_name_another_module_has_is_refused(project):
    write(project / "json.py", MODULE, name="json")
    with pytest.raises(TaskDefinitionError, match="that name belongs to"):
        load_module("json.py")


def test_a_modules_tasks_are_its_own_its_imports_and_its_pipelines(project):
    write(project / "radio.py", MODULE, name="radio")
    write(project / "all_of_them.py", "import radio\nchain = radio.chain\n")
    assert [task.name for task in tasks_of(load_module("all_of_them"))] == ["radio.first"]


def test_a_worker_finds_a_task_by_importing_its_module(project):
    write(project / "radio.py", MODULE, name="radio")
    assert find_task("radio", "radio.first").name == "radio.first"


def test_a_worker_finds_a_task_made_by_a_function_if_the_module_keeps_it(project):
    write(project / "radio.py", MODULE + "\nkept = make()\n", name="radio")
    assert find_task("radio", "radio.nested").name == "radio.nested"


def test_a_task_inside_a_function_is_refused_because_no_worker_could_find_it(project):
    write(project / "radio.py", MODULE + "\nchain2 = pipeline('c2', [make()])\n", name="radio")
    with pytest.raises(TaskDefinitionError, match=r"radio\.py:\d+: .*inside a function"):
        find_task("radio", "radio.nested")


def test_an_unknown_task_is_refused_naming_the_known_ones(project):
    write(project / "radio.py", MODULE, name="radio")
    with pytest.raises(TaskDefinitionError) as refused:
        find_task("radio", "radio.frist")
    assert "did you mean 'radio.first'?" in refused.value.fix


def test_one_task_name_in_two_modules_is_refused_naming_both(project):
    write(project / "one.py", MODULE, name="same")
    write(project / "other.py", MODULE, name="same")
    load_module("one")
    with pytest.raises(TaskDefinitionError, match=r"^other\.py:\d+: .*one\.first at one\.py:\d+"):
        load_module("other")


def test_importing_a_module_again_replaces_its_tasks(project):
    write(project / "radio.py", MODULE, name="again")
    before = find_task("radio", "again.first")
    del sys.modules["radio"]
    assert find_task("radio", "again.first") is not before
