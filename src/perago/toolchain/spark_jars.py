"""Spark's home, which is in the PySpark wheel, and the jars by which Spark reads and writes S3.

The jars are fetched once, by the Ivy in the wheel, and checked. Spark could resolve them itself, by
``spark.jars.packages``, but that takes seconds at each start.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import metadata
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from perago.errors import RuntimeConfigError
from perago.toolchain.cache import Tool, cache_problem, ensure, run, sha256_of
from perago.toolchain.java import java_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perago.toolchain.cache import OnLine
    from perago.toolchain.java import Java

VERSION = "4.1.2"
"""The Spark that spark_jars.txt fits."""
_FETCHED_LINE = "[SUCCESSFUL ]"
_JARS_PER_LINE = 5


def spark_home() -> Path:
    """Return PySpark's directory, which holds a whole Spark; PySpark isn't imported.

    Raises RuntimeConfigError if PySpark isn't installed, is another version, or is only the client
    for Spark Connect.
    """
    fix = f"pip install 'perago-runtime[spark]', which brings pyspark {VERSION}"
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RuntimeConfigError("PySpark isn't installed", fix=fix)
    home = Path(spec.origin).parent
    if not (home / "jars").is_dir():
        raise RuntimeConfigError(f"the PySpark in {home} is a client without Spark", fix=fix)
    if (found := metadata.version("pyspark")) != VERSION:
        raise RuntimeConfigError(f"pyspark is {found}, not {VERSION}", fix=fix)
    return home


def is_installed() -> bool:
    """Whether there is a PySpark that :func:`spark_home` accepts."""
    try:
        spark_home()
    except RuntimeConfigError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar's Maven coordinates and its expected hash."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"


def ensure_s3_jars(
    java: Java,
    on_line: OnLine,
    *,
    ivy_settings: str | None = None,
    repositories: Sequence[str] = (),
) -> tuple[Path, ...]:
    """Return the jars for S3; fetch them if they aren't in the cache.

    ``ivy_settings`` and ``repositories`` are Spark's ``spark.jars.ivySettings``, a file or URL with
    Ivy's whole configuration, and ``spark.jars.repositories``, which are tried before Maven
    Central. Raises RuntimeConfigError if a jar can't be fetched or has another hash.
    """
    ensure(
        _tool(), lambda target: _fetch(java, target, on_line, ivy_settings, repositories), on_line
    )
    return _paths()


def cached_s3_jars() -> tuple[Path, ...] | None:
    """Return the jars for S3 if they are in the cache; else None."""
    return _paths() if cache_problem(_tool()) is None else None


@cache
def _pinned() -> tuple[Jar, ...]:
    lines = (files("perago.toolchain") / "spark_jars.txt").read_text(encoding="utf-8").splitlines()
    fields = (line.replace(":", " ").split() for line in lines if not line.startswith("#"))
    return tuple(Jar(group, name, version, sha256) for group, name, version, sha256 in fields)


def _tool() -> Tool:
    names = tuple(jar.file_name for jar in _pinned())
    listed = hashlib.sha256("".join(jar.sha256 for jar in _pinned()).encode()).hexdigest()[:12]
    return Tool("spark-s3-jars", f"{VERSION}-{listed}", names)


def _paths() -> tuple[Path, ...]:
    tool = _tool()
    return tuple(tool.directory / name for name in tool.programs)


def _fetch(
    java: Java, target: Path, on_line: OnLine, ivy_settings: str | None, repositories: Sequence[str]
) -> None:
    jars = _pinned()
    fix = (
        "let this machine reach Maven Central (HTTPS_PROXY is obeyed), or name a mirror by "
        "spark.jars.repositories or spark.jars.ivySettings; or copy "
        f"{_tool().directory} from a machine that has it"
    )
    doing = f"fetching Spark's {len(jars)} jars for S3"
    on_line(f"{doing}: 13 MB, once for this machine")
    work = target / "ivy"
    work.mkdir()
    if ivy_settings is None:
        ivy_settings = str(work / "settings.xml")
        Path(ivy_settings).write_text(_settings(repositories), encoding="utf-8")
    (work / "ivy.xml").write_text(_module(jars), encoding="utf-8")
    fetched = 0

    def count(line: str) -> None:
        nonlocal fetched
        if _FETCHED_LINE in line:
            fetched += 1
            if fetched % _JARS_PER_LINE == 0:
                on_line(f"{doing}: {fetched} fetched")

    (ivy,) = (spark_home() / "jars").glob("ivy-*.jar")
    run(
        [
            java.program,
            *_proxy_options(),
            *("-jar", ivy),
            *("-settings", ivy_settings, "-cache", work / "cache", "-ivy", work / "ivy.xml"),
            *("-retrieve", f"{target}/[artifact]-[revision].[ext]"),
        ],
        doing=f"fetching {jars[0]} and {len(jars) - 1} other jars for Spark",
        fix=fix,
        environment=java_environment(),
        directory=work,
        on_output=count,
    )
    for jar in jars:
        _assert_published(jar, target / jar.file_name, fix)
    shutil.rmtree(work)


def _assert_published(jar: Jar, path: Path, fix: str) -> None:
    if not path.exists():
        raise RuntimeConfigError(f"{jar} wasn't found in any repository", fix=fix)
    if (found := sha256_of(path)) != jar.sha256:
        raise RuntimeConfigError(
            f"{jar} isn't the published one: its sha256 is {found}, not {jar.sha256}",
            fix="something between this machine and the repository changed it: try again, or "
            "name another one by spark.jars.repositories",
        )


def _settings(repositories: Sequence[str]) -> str:
    """Return Ivy's settings: the user's own Maven repository first, as Spark does. No POM is read.

    The last resolver has no address: that is Maven Central.
    """
    own = Path("~/.m2/repository/").expanduser().as_uri() + "/"
    roots = [f' root="{escape(root)}"' for root in (own, *repositories)]
    resolvers = "".join(
        f'<ibiblio name="{n}" m2compatible="true" usepoms="false"{root}/>'
        for n, root in enumerate([*roots, ""])
    )
    return (
        '<ivysettings><settings defaultResolver="all"/><resolvers>'
        f'<chain name="all" returnFirst="true">{resolvers}</chain></resolvers></ivysettings>'
    )


def _module(jars: Sequence[Jar]) -> str:
    """Return Ivy's module file. Dependencies of the jars are listed too, or are in PySpark."""
    dependencies = "".join(
        f'<dependency org="{jar.group}" name="{jar.name}" rev="{jar.version}" transitive="false"/>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="perago" module="spark-s3-jars"/>'
        '<configurations defaultconfmapping="default->master(default)"><conf name="default"/>'
        f"</configurations><dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _proxy_options() -> list[str]:
    """Java doesn't read the environment variables that set the proxy of other programs."""
    options = []
    for scheme in ("http", "https"):
        name = f"{scheme}_proxy"
        proxy = urlsplit(os.environ.get(name) or os.environ.get(name.upper()) or "")
        if proxy.hostname:
            options.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            options.append(f"-D{scheme}.proxyPort={proxy.port or 80}")
    return options
