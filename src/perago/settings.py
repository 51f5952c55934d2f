"""Settings, from the environment and ``.env``: one model, validated before anything starts."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from perago.errors import RuntimeConfigError

STACK_SETTINGS = "settings.env"
"""The file in the stack's directory with the addresses and keys of its servers."""

API_PATH = "/api/v1"
"""The path of the API on a lakeFS server."""

SPARK_CONF_PREFIX = "PERAGO_SPARK_CONF_"
"""The start of variables that each set one of Spark's settings."""

LAKEFS_FIELDS = frozenset({"lakefs_endpoint", "lakefs_access_key_id", "lakefs_secret_access_key"})
CONDUCTOR_FIELDS = frozenset({"conductor_url", "conductor_auth_key", "conductor_auth_secret"})

SERVER_FIELDS = (LAKEFS_FIELDS, CONDUCTOR_FIELDS)
"""The settings of each server: all are taken from one source, never from two."""

_NAME_LENGTH = 12
_CONNECT_SERVER = re.compile(r"sc://([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?(/(;.*)?)?\Z")
_SECRET_NAME = re.compile(r"(?i)secret|password|token|access[.]?key")


class Settings(BaseSettings):
    """What is set for a machine. What a task needs is in its declaration."""

    model_config = SettingsConfigDict(
        env_prefix="PERAGO_",
        env_file=".env",
        extra="ignore",
        frozen=True,
        populate_by_name=True,
        hide_input_in_errors=True,
    )

    home: Path = Field(
        default=Path(".perago"),
        description="Directory of the embedded store, the queue and the logs.",
    )
    workspace_root: Path | None = Field(
        default=None, description="Directory for attempts; default: in home."
    )
    publish_fence: Literal["auto", "soft", "cas"] = Field(
        default="auto", description="Guarantee level of publications."
    )
    replace: Literal["any", "own"] = Field(
        default="any",
        description="Abandoned commits that a retry may replace: any, or only its own step's.",
    )
    store: Literal["embedded", "lakefs"] = Field(
        default="embedded", description="Store of the workspaces; --on chooses it for one command."
    )
    orchestrator: Literal["embedded", "conductor"] = Field(
        default="embedded", description="What schedules tasks; --on chooses it for one command."
    )
    conductor_url: str | None = Field(
        default=None,
        validation_alias="CONDUCTOR_SERVER_URL",
        description="Address of the Conductor server, with /api.",
    )
    conductor_auth_key: str | None = Field(
        default=None,
        validation_alias="CONDUCTOR_AUTH_KEY",
        description="Key for the Conductor server, if it needs one.",
    )
    conductor_auth_secret: SecretStr | None = Field(
        default=None,
        validation_alias="CONDUCTOR_AUTH_SECRET",
        description="That key's secret.",
    )
    conductor_ca_file: Path | None = Field(
        default=None,
        description="CA bundle used to verify Conductor.",
    )
    single_writer: Literal["off", "warn", "enforce"] = Field(
        default="warn",
        description="What a worker does if a second active workflow writes its branch.",
    )
    log_format: Literal["text", "json"] = Field(
        default="text",
        description="Format of the lines about attempts on standard error.",
    )
    listen: str | None = Field(
        default=None,
        description="Address for health and metrics of `perago start`: '127.0.0.1:9464'.",
    )
    lakefs_endpoint: str | None = Field(
        default=None,
        validation_alias="LAKECTL_SERVER_ENDPOINT_URL",
        description="Address of the lakeFS server.",
    )
    lakefs_access_key_id: str | None = Field(
        default=None,
        validation_alias="LAKECTL_CREDENTIALS_ACCESS_KEY_ID",
        description="Key for the lakeFS server.",
    )
    lakefs_secret_access_key: SecretStr | None = Field(
        default=None,
        validation_alias="LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
        description="That key's secret.",
    )
    lakefs_ca_file: Path | None = Field(
        default=None,
        description="CA bundle used to verify lakeFS.",
    )
    lakefs_storage_namespace: str | None = Field(
        default=None,
        description="Storage of repositories that Perago creates: 's3://bucket/path'.",
    )
    spark_master: str | None = Field(
        default=None,
        validation_alias="SPARK_MASTER",
        description="Spark master: 'spark://HOST:7077', 'local[4]'; default: all cores of this "
        "machine.",
    )
    spark_remote: SecretStr | None = Field(
        default=None,
        validation_alias="SPARK_REMOTE",
        description="Spark Connect server to use instead: 'sc://HOST:15002'.",
    )
    spark_conf: dict[str, str] = Field(
        default_factory=dict,
        description="Further Spark settings, as JSON; or one variable for each, such as "
        "PERAGO_SPARK_CONF_spark_sql_shuffle_partitions.",
        repr=False,
    )
    spark_success_files: Literal["keep", "drop"] = Field(
        default="drop", description="Whether the _SUCCESS files that Spark writes are published."
    )
    spark_lineage: Literal["off", "on"] = Field(
        default="off",
        description="Whether Spark sends the lineage of its jobs, if OpenLineage is set up.",
    )
    cache: Path | None = Field(
        default=None,
        description="Directory that caches objects from lakeFS; default: in home.",
    )
    cache_bytes: int = Field(
        default=10 * 1024**3, ge=0, description="Limit of that cache in bytes; 0 for no cache."
    )
    stack: Path = Field(
        default=Path(".perago/stack"),
        description="Directory of the servers that `perago stack` starts.",
    )
    failpoints: str = Field(
        default="", description="Faults to inject in tests: 'publish.sent=kill'."
    )

    @field_validator("publish_fence", mode="before")
    @classmethod
    def _exactly_once_is_not_cas(cls, value: object) -> object:
        if value == "exactly-once":
            # pydantic would put "Value error, " before the message of a ValueError.
            raise PydanticCustomError(
                "unavailable", "'exactly-once' isn't available yet, and 'cas' is not the same"
            )
        return value

    @field_validator("spark_master")
    @classmethod
    def _connect_has_its_own_variable(cls, value: str | None) -> str | None:
        if value is not None and value.startswith("sc://"):
            raise PydanticCustomError("remote", "a Spark Connect server belongs in SPARK_REMOTE")
        return value

    @field_validator("spark_remote")
    @classmethod
    def _is_a_connect_server(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _CONNECT_SERVER.match(value.get_secret_value()):
            raise PydanticCustomError(
                "remote", "write a Spark Connect server as sc://HOST[:PORT][/;KEY=VALUE;...]"
            )
        return value

    @property
    def queue(self) -> Path:
        """The queue of the store in use: two stores may have repositories of the same name.

        On lakeFS, raises as :attr:`lakefs_login` does.
        """
        return self._for_store(self.home) / "queue.db"

    @property
    def attempts(self) -> Path:
        """The attempts of the store in use: a dead attempt's leftovers name a branch of that store.

        On lakeFS, raises as :attr:`lakefs_login` does.
        """
        if self.workspace_root is not None:
            return self._for_store(self.workspace_root)
        return self._for_store(self.home) / "attempts"

    def _for_store(self, directory: Path) -> Path:
        """The directory itself; for lakeFS a subdirectory named after the server's address."""
        if self.store == "embedded":
            return directory.absolute()
        address, _, _ = self.lakefs_login
        name = hashlib.sha256(address.encode()).hexdigest()[:_NAME_LENGTH]
        return directory.absolute() / f"lakefs-{name}"

    @property
    def object_cache(self) -> Path:
        return (self.cache or self.home / "cache").absolute()

    @property
    def logs(self) -> Path:
        return self.home.absolute() / "logs"

    @property
    def lakefs_login(self) -> tuple[str, str, SecretStr]:
        """The server's address without the API's path, the key and its secret.

        Raises RuntimeConfigError naming each variable that isn't set, or that isn't an address.
        """
        endpoint, key = self.lakefs_endpoint, self.lakefs_access_key_id
        secret = self.lakefs_secret_access_key
        if endpoint is None or key is None or secret is None:
            missing = [
                variable_of(name) for name in sorted(LAKEFS_FIELDS) if getattr(self, name) is None
            ]
            raise RuntimeConfigError(
                f"no lakeFS is set up: {', '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} not set",
                fix="set them in the environment or in .env, or start a server here with `perago "
                "stack up`; to use one that was started in another directory, set PERAGO_STACK to "
                "the .perago/stack there",
            )
        return plain_endpoint(endpoint), key, secret

    @property
    def conductor_login(self) -> ConductorLogin:
        """The server's address, and the key and its secret, if set.

        Raises RuntimeConfigError naming a variable that isn't set, or that isn't an address.
        """
        if self.conductor_url is None:
            raise RuntimeConfigError(
                "no Conductor is set up: CONDUCTOR_SERVER_URL is not set",
                fix="set it in the environment or in .env (http://HOST:PORT/api), or start a "
                "server here with `perago stack up`",
            )
        key, secret = self.conductor_auth_key, self.conductor_auth_secret
        if (key is None) != (secret is None):
            given, missing = "CONDUCTOR_AUTH_KEY", "CONDUCTOR_AUTH_SECRET"
            if key is None:
                given, missing = missing, given
            raise RuntimeConfigError(
                f"{given} is set, but {missing} isn't",
                fix="set both, or neither if the server needs no key",
            )
        return ConductorLogin(
            _plain_address("CONDUCTOR_SERVER_URL", self.conductor_url), key, secret
        )

    def ca_file(self, field: Literal["lakefs_ca_file", "conductor_ca_file"]) -> Path | None:
        """The CA bundle that a setting names. Raises RuntimeConfigError if it holds none."""
        import ssl

        file: Path | None = getattr(self, field)
        if file is None:
            return None
        try:
            ssl.create_default_context(cafile=file)
        except FileNotFoundError:
            problem = "there is no such file"
        except ssl.SSLError:
            problem = "there is no certificate in it"
        except OSError as error:
            problem = error.strerror or str(error)
        else:
            return file
        raise RuntimeConfigError(
            f"{variable_of(field)}={file}: {problem}",
            fix="name the file with the authority's certificate, in PEM form",
        )


class ConductorLogin(NamedTuple):
    """The address of Conductor's API, and the key for it, if any."""

    address: str
    key: str | None
    secret: SecretStr | None


def load_settings(**given: object) -> Settings:
    """The settings in force. ``given`` ones, from a command line, win over the environment.

    A server that `perago stack` started here is used if no other one is set. All of its settings
    are used or none: its key doesn't work on another server. Raises RuntimeConfigError naming the
    variable, its value and what is allowed.
    """
    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if single := single_spark_settings(_variables()):
        values["spark_conf"] = values.get("spark_conf", {}) | single
    try:
        settings = Settings(**values)
        stack = settings.stack / STACK_SETTINGS
        if not stack.is_file():
            return settings
        ours = Settings(_env_file=(stack, ".env"), **values)
        for fields in SERVER_FIELDS:
            if not settings.model_fields_set.isdisjoint(fields):
                own = {name: getattr(settings, name) for name in fields}
                ours = ours.model_copy(update=own)
    except SettingsError as error:  # of PERAGO_SPARK_CONF, the only one with JSON
        raise RuntimeConfigError(
            f"PERAGO_SPARK_CONF is not JSON: {error.__cause__ or error}",
            fix='write it as {"spark.sql.shuffle.partitions": "8"}, or use a variable for each',
        ) from None
    except ValidationError as error:
        problems = "; ".join(
            f"{_spelled(str(e['loc'][0]), e['input'])}: {e['msg']}" for e in error.errors()
        )
        raise RuntimeConfigError(
            problems, fix="correct it in the environment or in .env, or unset it for the default"
        ) from None
    return ours


def _variables() -> dict[str, str | None]:
    """The variables of the environment, and those of .env that it doesn't have."""
    if not Path(".env").is_file():
        return dict(os.environ)
    from dotenv import dotenv_values

    return dotenv_values(".env") | dict(os.environ)


def single_spark_settings(environment: Mapping[str, str | None]) -> dict[str, str]:
    """Spark settings from their own variables: ``_`` stands for ``.``, and ``__`` for ``_``."""
    return {
        "_".join(part.replace("_", ".") for part in name.split("__")): value
        for variable, value in environment.items()
        if (name := variable.removeprefix(SPARK_CONF_PREFIX)) != variable and name and value
    }


def is_secret(spark_setting: str) -> bool:
    """Whether a Spark setting may hold a secret, by its name, as Spark itself decides it."""
    return bool(_SECRET_NAME.search(spark_setting))


def plain_endpoint(url: str) -> str:
    """The lakeFS server's address without the API's path, which lakectl's settings may have.

    Raises RuntimeConfigError if it isn't an http(s) address.
    """
    return _plain_address("LAKECTL_SERVER_ENDPOINT_URL", url).removesuffix(API_PATH)


def _plain_address(variable: str, url: str) -> str:
    parts = urlsplit(url.strip())
    if parts.username or parts.password:  # not shown: it may be a secret
        raise RuntimeConfigError(
            f"{variable} has credentials in it",
            fix="leave only the address, and set the key and its secret in their own variables",
        )
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise RuntimeConfigError(
            f"{variable}={url!r} is not the address of a server",
            fix="write it as http://HOST:PORT or https://HOST",
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def variable_of(field: str) -> str:
    """The environment variable that sets a field."""
    alias = Settings.model_fields[field].validation_alias
    return alias if isinstance(alias, str) else f"PERAGO_{field.upper()}"


def _spelled(place: str, value: object) -> str:
    """``VARIABLE=value``, without the value of a secret. ``place`` is a field or its variable."""
    name = variable_of(place) if place in Settings.model_fields else place
    return name if name in _HIDDEN else f"{name}={value!s:.80}"


SECRETS = frozenset(
    variable_of(name)
    for name in ("lakefs_secret_access_key", "conductor_auth_secret", "spark_remote")
)
_HIDDEN = SECRETS | {variable_of("spark_conf")}  # spark_conf may hold secrets, too
