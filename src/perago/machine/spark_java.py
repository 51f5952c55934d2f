"""A Java that Spark runs on: the machine's own if it fits, else the fetched one."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perago.errors import RuntimeConfigError
from perago.machine.java import (
    environment,
    find_java,
    installed_java,
    why_not_java_home,
)
from perago.machine.tools import Tool, ensure, problem_with

if TYPE_CHECKING:
    from perago.machine.java import Java
    from perago.machine.tools import Tell

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
_PROGRAM = "bin/java"
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SparkJava:
    """``home`` is what JAVA_HOME has to be for Spark to start ``java``."""

    home: Path
    java: Java


def spark_java(tell: Tell) -> SparkJava:
    """A Java for Spark, fetched if the machine has none that fits.

    A JAVA_HOME that is of no use is passed over and told of. Raises RuntimeConfigError if no
    other one is there or can be fetched.
    """
    problem = why_not_java_home(OLDEST, NEWEST)
    try:
        java = find_java(OLDEST, tell, newest=NEWEST)
    except RuntimeConfigError as error:
        if problem is None:
            raise
        raise RuntimeConfigError(f"{problem}; {error.message}", fix=error.fix) from error
    if problem is not None:
        tell(f"{problem}: using {java.program}, Java {java.feature}")
    home = _own_home(java)
    if home is None:
        home = ensure(_wrapped(java), lambda room: _wrap(java, room), tell)
    return SparkJava(home, java)


def installed_spark_java() -> SparkJava | None:
    """What :func:`spark_java` needs not fetch or make."""
    java = installed_java(OLDEST, NEWEST)
    if java is None:
        return None
    if home := _own_home(java):
        return SparkJava(home, java)
    wrapped = _wrapped(java)
    return SparkJava(wrapped.directory, java) if problem_with(wrapped) is None else None


def _own_home(java: Java) -> Path | None:
    """Where it says it is installed; None if it can't be started as Spark starts it."""
    asked = subprocess.run(
        [java.program, _MODULE_OPTION, "-XshowSettings:properties", "-version"],
        env=environment(),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=_ANSWER_SECONDS,
    )
    said = re.search(r"^\s*java\.home = (.+)$", asked.stderr, re.MULTILINE)
    home = Path(said.group(1)) if said and asked.returncode == 0 else None
    return home if home and (home / _PROGRAM).exists() else None


def _wrapped(java: Java) -> Tool:
    return Tool("spark-java-home", f"{java.feature}-{java.build}", (_PROGRAM,))


def _wrap(java: Java, room: Path) -> None:
    program = room / _PROGRAM
    program.parent.mkdir()
    program.write_text(_WRAPPER % shlex.quote(str(java.program)), encoding="utf-8")
    program.chmod(0o755)
