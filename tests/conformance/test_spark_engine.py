"""The Spark engine on an embedded store: the same statements as for every other engine.

They are about files, so no Spark is started: the body writes and removes files as Spark does, each
anew and by its name. What real Spark makes of a workspace is in tests/integration.
"""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from perago.adapters.spark.engine import SparkEngine
from perago.errors import SparkPathError
from perago.testing.conformance.engine import EngineBench, EngineConformance


class NoSpark:
    """Stands in for what these statements don't ask of: computing."""

    sees_local_files = True

    def load(self): ...

    def bring(self): ...

    def start(self): ...

    def begin(self, name, hadoop):
        del name, hadoop

    def headway(self):
        return None

    def end_jobs(self): ...

    def end(self): ...

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
