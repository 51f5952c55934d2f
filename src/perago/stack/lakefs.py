"""lakeFS on loopback: its programs, its configuration, and the server of a directory."""

from __future__ import annotations

import json
import secrets
import shutil
import string
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from perago.stack.lakefs_build import PROGRAMS, VERSION, build
from perago.stack.server import LOOPBACK, Server, ServerKind, write_private
from perago.toolchain.cache import Tool, cache_problem, ensure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.toolchain.cache import OnLine

STORAGE_NAMESPACE = "local://repositories"
"""Each repository keeps its objects in its own directory below it."""

_TOOL = Tool("lakefs", VERSION, tuple(f"bin/{program}" for program in PROGRAMS))
_CONFIG = "config.yaml"
_CREDENTIALS = "credentials.json"


@dataclass(frozen=True, slots=True)
class LakeFSBinaries:
    lakefs: Path
    lakectl: Path


@dataclass(frozen=True, slots=True)
class Credentials:
    """Generated for one server: the key of its only user, and the key that encrypts its secrets."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    encryption_key: str = field(repr=False)


def ensure_lakefs(on_line: OnLine) -> LakeFSBinaries:
    """Return the programs: from the cache, from PATH if their version fits, else built now.

    Raises RuntimeConfigError if they can't be built, such as without a module proxy.
    """
    if cache_problem(_TOOL) is not None and (found := _on_path()):
        return found
    cached = ensure(_TOOL, lambda target: build(target, on_line), on_line)
    return LakeFSBinaries(cached / "bin" / "lakefs", cached / "bin" / "lakectl")


def is_cached() -> bool:
    """Whether :func:`ensure_lakefs` has nothing to fetch or build."""
    return cache_problem(_TOOL) is None or _on_path() is not None


def lakefs_server(
    directory: Path, port: int, on_line: OnLine, *, config: Mapping[str, object] | None = None
) -> Server:
    """Describe a lakeFS whose files are all in ``directory``; its credentials never change.

    ``config`` is merged into its configuration, section by section. Raises RuntimeConfigError as
    :func:`ensure_lakefs` does.
    """
    directory = directory.absolute()
    binaries = ensure_lakefs(on_line)
    credentials = _credentials(directory)
    merged = merge(configuration(directory, port, credentials), config or {})
    endpoint = f"{'https' if _has_tls(merged) else 'http'}://{LOOPBACK}:{port}"
    return Server(
        name="lakefs",
        version=VERSION,
        directory=directory,
        command=(str(binaries.lakefs), "--config", str(directory / _CONFIG), "run"),
        port=port,
        health_url=f"{endpoint}/_health",
        # JSON is YAML, too.
        files={_CONFIG: json.dumps(merged, indent=2) + "\n"},
        settings={
            "LAKECTL_SERVER_ENDPOINT_URL": endpoint,
            "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": credentials.access_key_id,
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": credentials.secret_access_key,
            "PERAGO_LAKEFS_STORAGE_NAMESPACE": STORAGE_NAMESPACE,
        },
        hidden_variables="LAKEFS_",
    )


def configuration(directory: Path, port: int, credentials: Credentials) -> dict[str, object]:
    """Return the configuration of a lakeFS that needs no set-up and sends no data to others."""
    data = directory / "data"
    return {
        "listen_address": f"{LOOPBACK}:{port}",
        "database": {"type": "local", "local": {"path": str(data / "metadata")}},
        "blockstore": {"type": "local", "local": {"path": str(data / "objects")}},
        "committed": {"local_cache": {"dir": str(data / "cache")}},
        "auth": {"encrypt": {"secret_key": credentials.encryption_key}},
        "installation": {
            "user_name": "perago",
            "access_key_id": credentials.access_key_id,
            "secret_access_key": credentials.secret_access_key,
        },
        "logging": {"level": "INFO"},
        "stats": {"enabled": False},
        "email_subscription": {"enabled": False},
        "security": {"check_latest_version": False, "audit_check_interval": "0"},
    }


def merge(base: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """Return ``base`` overridden by ``over``; sections are merged, other values replaced."""
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        both = isinstance(below, dict) and isinstance(value, dict)
        merged[name] = merge(below, value) if both else value  # type: ignore[arg-type]
    return merged


def _has_tls(config: Mapping[str, object]) -> bool:
    tls = config.get("tls")
    return isinstance(tls, dict) and bool(tls.get("enabled"))


def _credentials(directory: Path) -> Credentials:
    """Read the directory's credentials; generate them the first time."""
    path = directory / _CREDENTIALS
    if path.exists():
        return Credentials(**json.loads(path.read_text(encoding="utf-8")))
    generated = {
        "access_key_id": "".join(secrets.choice(string.ascii_uppercase) for _ in range(20)),
        "secret_access_key": secrets.token_urlsafe(30),
        "encryption_key": secrets.token_urlsafe(30),
    }
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, json.dumps(generated) + "\n")
    return Credentials(**generated)


def _on_path() -> LakeFSBinaries | None:
    """Return the programs on PATH if both are there and have this version."""
    found = [path for program in PROGRAMS if (path := shutil.which(program))]
    if len(found) < len(PROGRAMS) or any(VERSION not in _version_words(path) for path in found):
        return None
    lakefs, lakectl = map(Path, found)
    return LakeFSBinaries(lakefs, lakectl)


def _version_words(program: str) -> list[str]:
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return shown.stdout.split()


KIND = ServerKind(
    name="lakefs",
    title="lakeFS",
    version=VERSION,
    prepare=ensure_lakefs,
    is_prepared=is_cached,
    server=lakefs_server,
)
