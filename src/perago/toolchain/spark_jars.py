"""The jars by which Spark speaks S3: fetched once by the Ivy in the PySpark wheel, and checked.

Spark could resolve them itself, by ``spark.jars.packages``, but takes seconds for it at each start.
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
from perago.toolchain import java as javas
from perago.toolchain.cache import Tool, cache_problem, ensure, run, sha256_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perago.toolchain.cache import OnLine
    from perago.toolchain.java import Java


# --- The Spark in the PySpark wheel: where it is, and which one ---
VERSION = "4.1.2"
"""What jars of ours are chosen for."""


def spark_home() -> Path:
    """PySpark's own directory, which is a whole Spark; nothing of it is imported.

    Raises RuntimeConfigError if PySpark isn't installed, is only the client for Spark Connect, or
    is another version.
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
    """Whether :func:`spark_home` has an answer."""
    try:
        spark_home()
    except RuntimeConfigError:
        return False
    return True


_FETCHED_LINE = "[SUCCESSFUL ]"
_LINES_APART = 5


@dataclass(frozen=True, slots=True)
class Jar:
    """One by its coordinates, and what it has to be."""

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
    """The jars: from the cache, else fetched now.

    ``ivy_settings`` is a file or address with all that Ivy has to know, ``repositories`` are asked
    before Maven Central: what Spark has as ``spark.jars.ivySettings`` and
    ``spark.jars.repositories``. Raises RuntimeConfigError if one can't be fetched, or isn't the
    published one.
    """
    ensure(_tool(), lambda room: _fetch(java, room, on_line, ivy_settings, repositories), on_line)
    return _places()


def cached_s3_jars() -> tuple[Path, ...] | None:
    """What :func:`ensure_s3_jars` needs not fetch."""
    return _places() if cache_problem(_tool()) is None else None


@cache
def _wanted() -> tuple[Jar, ...]:
    lines = (files("perago.toolchain") / "spark_jars.txt").read_text(encoding="utf-8").splitlines()
    fields = (line.replace(":", " ").split() for line in lines if not line.startswith("#"))
    return tuple(Jar(group, name, version, sha256) for group, name, version, sha256 in fields)


def _tool() -> Tool:
    names = tuple(jar.file_name for jar in _wanted())
    listed = hashlib.sha256("".join(jar.sha256 for jar in _wanted()).encode()).hexdigest()[:12]
    return Tool("spark-s3-jars", f"{VERSION}-{listed}", names)


def _places() -> tuple[Path, ...]:
    tool = _tool()
    return tuple(tool.directory / name for name in tool.programs)


def _fetch(
    java: Java, room: Path, on_line: OnLine, ivy_settings: str | None, repositories: Sequence[str]
) -> None:
    jars = _wanted()
    fix = (
        "let this machine reach Maven Central (HTTPS_PROXY is obeyed), or name a mirror by "
        "spark.jars.repositories or spark.jars.ivySettings; or copy "
        f"{_tool().directory} from a machine that has it"
    )
    words = f"fetching Spark's {len(jars)} jars for S3"
    on_line(f"{words}: 13 MB, once for this machine")
    work = room / "ivy"
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
            if fetched % _LINES_APART == 0:
                on_line(f"{words}: {fetched} are here")

    (ivy,) = (spark_home() / "jars").glob("ivy-*.jar")
    run(
        [
            java.program,
            *_proxy_options(),
            *("-jar", ivy),
            *("-settings", ivy_settings, "-cache", work / "cache", "-ivy", work / "ivy.xml"),
            *("-retrieve", f"{room}/[artifact]-[revision].[ext]"),
        ],
        doing=f"fetching {jars[0]} and {len(jars) - 1} other jars for Spark",
        fix=fix,
        environment=javas.environment(),
        directory=work,
        on_output=count,
    )
    for jar in jars:
        _assert_published(jar, room / jar.file_name, fix)
    shutil.rmtree(work)


def _assert_published(jar: Jar, path: Path, fix: str) -> None:
    if not path.exists():
        raise RuntimeConfigError(f"{jar} wasn't brought", fix=fix)
    if (found := sha256_of(path)) != jar.sha256:
        raise RuntimeConfigError(
            f"{jar} isn't the published one: its sha256 is {found}, not {jar.sha256}",
            fix="something between this machine and the repository changed it: try again, or "
            "name another one by spark.jars.repositories",
        )


def _settings(repositories: Sequence[str]) -> str:
    """The user's own Maven repository first, as Spark has it. No jar needs its POM looked at.

    The last one has no address: Ivy knows where Maven Central is.
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
    """Each jar by itself: what else its POM names is listed too, or is in PySpark already."""
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
    """Java doesn't know the variables that other programs find their proxy by."""
    options = []
    for scheme in ("http", "https"):
        name = f"{scheme}_proxy"
        proxy = urlsplit(os.environ.get(name) or os.environ.get(name.upper()) or "")
        if proxy.hostname:
            options.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            options.append(f"-D{scheme}.proxyPort={proxy.port or 80}")
    return options
