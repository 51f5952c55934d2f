"""Settings, from the environment and ``.env``: one model, validated before anything starts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from perago.errors import RuntimeConfigError

STACK_SETTINGS = "settings.env"
"""The file in the stack's directory by which its servers are found."""

API_PATH = "/api/v1"
"""Where on its address a lakeFS server has its API."""

_NAME_LENGTH = 12


class Settings(BaseSettings):
    """What the machine decides. Tasks decide about themselves in their declarations."""

    model_config = SettingsConfigDict(
        env_prefix="PERAGO_",
        env_file=".env",
        extra="ignore",
        frozen=True,
        populate_by_name=True,
        hide_input_in_errors=True,
    )

    home: Path = Field(
        default=Path(".perago"), description="Where the embedded store, queue and logs live."
    )
    workspace_root: Path | None = Field(
        default=None, description="Where attempts work; below home unless set."
    )
    publish_fence: Literal["auto", "soft", "cas"] = Field(
        default="auto", description="The guarantee level to publish with."
    )
    replace: Literal["any", "own"] = Field(
        default="any",
        description="Which abandoned commits a retry may replace: any, or only its own step's.",
    )
    store: Literal["embedded", "lakefs"] = Field(
        default="embedded", description="Where workspaces live; --on says so for one command."
    )
    lakefs_endpoint: str | None = Field(
        default=None,
        validation_alias="LAKECTL_SERVER_ENDPOINT_URL",
        description="The lakeFS server's address.",
    )
    lakefs_access_key_id: str | None = Field(
        default=None,
        validation_alias="LAKECTL_CREDENTIALS_ACCESS_KEY_ID",
        description="The lakeFS key to use.",
    )
    lakefs_secret_access_key: SecretStr | None = Field(
        default=None,
        validation_alias="LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
        description="That key's secret.",
    )
    lakefs_ca_file: Path | None = Field(
        default=None,
        description="Certificates of an authority of your own, to believe lakeFS by.",
    )
    lakefs_storage_namespace: str | None = Field(
        default=None,
        description="Where repositories made by Perago keep their objects: 's3://bucket/path'.",
    )
    cache: Path | None = Field(
        default=None,
        description="Where objects fetched from lakeFS are kept; below home unless set.",
    )
    cache_bytes: int = Field(
        default=10 * 1024**3, ge=0, description="How large that may grow; 0 keeps nothing."
    )
    stack: Path = Field(
        default=Path(".perago/stack"), description="Where `perago stack` keeps its servers' files."
    )
    failpoints: str = Field(
        default="", description="Faults to inject, for tests: 'publish.sent=kill'."
    )

    @field_validator("publish_fence", mode="before")
    @classmethod
    def _exactly_once_is_not_cas(cls, value: object) -> object:
        if value == "exactly-once":
            # Not ValueError, which pydantic would put "Value error, " in front of.
            raise PydanticCustomError(
                "unavailable", "'exactly-once' isn't available yet, and is never taken for 'cas'"
            )
        return value

    @property
    def queue(self) -> Path:
        """Each store's runs apart: repositories may have the same name in two of them.

        Raises as :attr:`lakefs_login` does, on lakeFS.
        """
        return self._of_the_store(self.home) / "queue.db"

    @property
    def attempts(self) -> Path:
        """Each store's attempts apart: what a dead one left names a branch of that store only.

        Raises as :attr:`lakefs_login` does, on lakeFS.
        """
        if self.workspace_root is not None:
            return self._of_the_store(self.workspace_root)
        return self._of_the_store(self.home) / "attempts"

    def _of_the_store(self, directory: Path) -> Path:
        """The directory itself; on lakeFS one in it that is named by the server's address."""
        if self.store == "embedded":
            return directory.absolute()
        address, _, _ = self.lakefs_login
        name = hashlib.sha256(address.encode()).hexdigest()[:_NAME_LENGTH]
        return directory.absolute() / f"lakefs-{name}"

    @property
    def lakefs_login(self) -> tuple[str, str, SecretStr]:
        """The server's plain address, our key and its secret.

        Raises RuntimeConfigError, naming what isn't set or is no address.
        """
        endpoint, key = self.lakefs_endpoint, self.lakefs_access_key_id
        secret = self.lakefs_secret_access_key
        if endpoint is None or key is None or secret is None:
            missing = [
                variable_of(name) for name in sorted(SERVER_FIELDS) if getattr(self, name) is None
            ]
            raise RuntimeConfigError(
                f"no lakeFS is set up: {', '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} not set",
                fix="set them in the environment or in .env, or start one here with `perago stack "
                "up`; for one that was started in another directory, set PERAGO_STACK to the "
                ".perago/stack of that",
            )
        return plain_endpoint(endpoint), key, secret

    @property
    def object_cache(self) -> Path:
        return (self.cache or self.home / "cache").absolute()

    @property
    def logs(self) -> Path:
        return self.home.absolute() / "logs"


def load_settings(**given: object) -> Settings:
    """The settings in force; ``given`` ones (from a command line) win over the environment.

    A server that `perago stack` started here is used where nothing else is named. Its settings
    count as a whole or not at all: its key is of no use to another server.
    Raises RuntimeConfigError naming the variable, its value and what is allowed.
    """
    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        settings = Settings(**values)
        stack = settings.stack / STACK_SETTINGS
        if not settings.model_fields_set.isdisjoint(SERVER_FIELDS) or not stack.is_file():
            return settings
        return Settings(_env_file=(stack, ".env"), **values)
    except ValidationError as error:
        problems = "; ".join(
            f"{_spelled(str(e['loc'][0]), e['input'])}: {e['msg']}" for e in error.errors()
        )
        raise RuntimeConfigError(
            problems, fix="correct it in the environment or in .env, or unset it for the default"
        ) from None


def plain_endpoint(url: str) -> str:
    """The server's address, with or without the API's path as lakectl's settings have it.

    Raises RuntimeConfigError if it isn't an http(s) address.
    """
    parts = urlsplit(url.strip())
    if parts.username or parts.password:  # not shown: it may hold a secret
        raise RuntimeConfigError(
            "LAKECTL_SERVER_ENDPOINT_URL has credentials in it",
            fix="leave only the address, and set the two LAKECTL_CREDENTIALS_… variables",
        )
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise RuntimeConfigError(
            f"LAKECTL_SERVER_ENDPOINT_URL={url!r} is not the address of a server",
            fix="give it as http://HOST:PORT or https://HOST",
        )
    path = parts.path.rstrip("/").removesuffix(API_PATH)
    return f"{parts.scheme}://{parts.netloc}{path}"


def variable_of(field: str) -> str:
    """The environment variable that sets a field."""
    alias = Settings.model_fields[field].validation_alias
    return alias if isinstance(alias, str) else f"PERAGO_{field.upper()}"


def _spelled(place: str, value: object) -> str:
    """``VARIABLE=value``; a secret's value is left out. A field with an alias is found by it."""
    name = variable_of(place) if place in Settings.model_fields else place
    return name if name in SECRETS else f"{name}={value!s:.80}"


SERVER_FIELDS = frozenset({"lakefs_endpoint", "lakefs_access_key_id", "lakefs_secret_access_key"})
"""What names a server and our way in: taken from one place, never from two."""

SECRETS = frozenset({variable_of("lakefs_secret_access_key")})
