"""The Spark engine on an embedded store: the same statements as for every other engine.

They are about files, so no Spark is started: the body writes and removes files as Spark does, each
anew and by its name. What real Spark makes of a workspace is in tests/integration.
"""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from perago.adapters.spark import local_files
from perago.adapters.spark.engine import SparkEngine
from perago.errors import SparkPathError, UnsupportedFileError
from perago.testing.conformance.engine import EngineBench, EngineConformance


class NoSpark:
    """Stands in for what these statements don't ask of: computing."""

    sees_local_files = True

    def load(self): ...

    def fetch_prerequisites(self): ...

    def start(self): ...

    def open_session(self, name, hadoop):
        del name, hadoop

    def progress(self):
        return None

    def cancel_jobs(self): ...

    def close_session(self): ...

    def stop(self): ...


class StagingBench(EngineBench):
    """Gives a body a staging branch, whose name is all that this engine needs of it."""

    def open(self, ref, *, prefix="/", progress=None):
        opened = self.engine.open
        self.engine = _Staging(opened)
        try:
            return super().open(ref, prefix=prefix, progress=progress)
        finally:
            self.engine = opened.__self__


class _Staging:
    def __init__(self, opened):
        self._open = opened

    def open(self, *given):
        return self._open(*given, staging=lambda: "staging")


def file_of(uri):
    return Path(unquote(urlsplit(uri).path))


class TestSparkEngine(EngineConformance):
    copies = False

    @pytest.fixture
    def engine(self):
        return SparkEngine(NoSpark(), None)

    @pytest.fixture
    def bench(self, engine, store, tmp_path):
        return StagingBench(engine, store, tmp_path)

    def write(self, opened, path, data):
        target = file_of(opened.argument.output(path))
        target.unlink(missing_ok=True)
        target.write_bytes(data)

    def remove(self, opened, path):
        file_of(opened.argument.output(path)).unlink()

    def read(self, opened, path):
        return file_of(opened.argument.input(path)).read_bytes()

    @pytest.mark.parametrize(
        "path", [".perago-attempt.json", "sub/.perago-attempt.json", "line\nbreak"]
    )
    def test_a_name_that_can_not_be_stored_is_refused_until_it_is_gone(self, bench, path):
        opened = bench.open(bench.commit({"a": b"1"}))
        with pytest.raises(SparkPathError) as refused:
            opened.argument.output(path)
        assert repr(path) in refused.value.message
        assert not opened.scan()

    def test_a_body_can_not_add_to_the_repositorys_actions(self, bench):
        opened = bench.open(bench.commit({"a": b"1"}))
        with pytest.raises(SparkPathError, match="_lakefs_actions"):
            opened.argument.output("_lakefs_actions/mine.yaml")
        assert not opened.scan()

    def test_the_stores_own_file_is_lent_and_not_copied(self, bench, store):
        opened = bench.open(bench.commit({"table/part": b"1" * 5000}))
        (entry,) = store.list_objects(bench.repository.repository, "main")
        lent = file_of(opened.argument.input("table")) / "part"
        assert lent.stat().st_nlink == 2
        assert lent.stat().st_mode & 0o777 == 0o444
        assert entry.size == 5000

    def test_a_large_output_is_taken_in_and_not_copied(self, bench):
        ref = bench.commit({"a": b"1"})
        opened = bench.open(ref)
        self.write(opened, "table/part", b"2" * 2_000_000)
        written = file_of(opened.argument.output("table/part"))
        assert bench.staged(opened, ref)["table/part"] == b"2" * 2_000_000
        assert written.stat().st_nlink == 2

    def test_a_read_only_body_is_given_no_output(self, engine, store, tmp_path):
        bench = EngineBench(engine, store, tmp_path)
        opened = bench.open(bench.commit({"a": b"1"}))
        with pytest.raises(SparkPathError, match="read_only"):
            opened.argument.output("table")

    # --- the store's own files --------------------------------------------------------------------

    @pytest.mark.parametrize("where", ["input", "output"])
    def test_names_beside_each_other_do_no_harm_to_each_other(self, bench, store, where):
        files = {"t/_meta": b"one", "t/_meta.copy": b"another", "t/_delta_log/0": b"log"}
        ref = bench.commit(files)
        opened = bench.open(ref)
        shown = file_of(getattr(opened.argument, where)("t"))
        assert {f"t/{path}": (shown / path).read_bytes() for path in _names(shown)} == files
        assert not opened.scan()
        assert store.verify().clean

    def test_what_spark_rewrites_in_place_is_a_copy_among_the_outputs(self, bench, store):
        opened = bench.open(bench.commit({"t/_SUCCESS": b"one", "t/part": b"1"}))
        shown = file_of(opened.argument.output("t"))
        assert (shown / "_SUCCESS").stat().st_nlink == 1
        assert (shown / "part").stat().st_nlink == 2
        (shown / "_SUCCESS").write_bytes(b"another")
        opened.scan()
        assert store.verify().clean

    @pytest.mark.parametrize("where", ["input", "output"])
    def test_a_file_of_the_store_that_was_written_in_place_is_told_and_nothing_staged(
        self, bench, store, where
    ):
        opened = bench.open(bench.commit({"t/part": b"as it was"}))
        file = file_of(getattr(opened.argument, where)("t")) / "part"
        file.chmod(0o644)  # as root, a body needn't even do that
        file.write_bytes(b"damage")
        with pytest.raises(UnsupportedFileError, match="'t/part' in place") as told:
            opened.scan()
        assert "perago verify" in told.value.fix
        assert not store.verify().clean
        file.write_bytes(b"as it was")
        file.chmod(0o444)

    def test_in_the_inputs_nothing_can_be_added_removed_or_replaced(self, bench):
        opened = bench.open(bench.commit({"t/p=1/part": b"1", "t/q": b"2", "raw/a": b"3"}))
        top = file_of(opened.argument.input(""))
        opened.argument.input("t/q")
        modes = {path: path.stat().st_mode & 0o777 for path in (top, *top.rglob("*"))}
        assert {mode for path, mode in modes.items() if path.is_dir()} == {0o555}
        assert {mode for path, mode in modes.items() if path.is_file()} == {0o444}
        assert len(modes) == 7

    def test_where_permissions_are_not_obeyed_everything_is_a_copy(self, bench, monkeypatch):
        monkeypatch.setattr(local_files, "can_drop_privileges", lambda: False)
        opened = bench.open(bench.commit({"t/part": b"1"}))
        for shown in (opened.argument.input("t"), opened.argument.output("t")):
            assert (file_of(shown) / "part").stat().st_nlink == 1
        assert not opened.scan()

    # --- where a body may write -------------------------------------------------------------------

    def test_what_is_written_beside_an_output_is_refused(self, bench):
        opened = bench.open(bench.commit({"a": b"1"}))
        beside = file_of(opened.argument.output("clean") + "_bad")
        beside.mkdir()
        (beside / "part").write_bytes(b"lost?")
        with pytest.raises(UnsupportedFileError, match="'clean_bad/part' was written"):
            opened.scan()

    def test_an_output_below_a_file_is_refused(self, bench):
        opened = bench.open(bench.commit({"report": b"1"}))
        with pytest.raises(SparkPathError, match="'report/v2' would lie below 'report'"):
            opened.argument.output("report/v2")
        assert not opened.scan()

    # --- what is checked --------------------------------------------------------------------------

    def test_what_was_staged_is_shown_and_not_what_the_body_left(self, bench):
        ref = bench.commit({"t/old": b"1", "other": b"2"})
        opened = bench.open(ref)
        self.write(opened, "t/new", b"3")
        bench.staged(opened, ref)
        (file_of(opened.argument.output("t")) / "late").write_bytes(b"after the scan")
        opened.look_at_staged("staged")
        assert list(opened.files) == ["other", "t/new", "t/old"]


def _names(folder):
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
