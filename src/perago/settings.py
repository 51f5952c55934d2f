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
"""The file in the stack's directory by which its servers are found."""

API_PATH = "/api/v1"
"""Where on its address a lakeFS server has its API."""

SPARK_CONF_PREFIX = "PERAGO_SPARK_CONF_"
"""What the variables begin with that set one of Spark's settings each."""

_NAME_LENGTH = 12
_CONNECT_SERVER = re.compile(r"sc://([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?(/(;.*)?)?\Z")
_SECRET_NAME = re.compile(r"(?i)secret|password|token|access[.]?key")


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
    orchestrator: Literal["embedded", "conductor"] = Field(
        default="embedded", description="Who schedules tasks; --on says so for one command."
    )
    conductor_url: str | None = Field(
        default=None,
        validation_alias="CONDUCTOR_SERVER_URL",
        description="The Conductor server's address, with /api.",
    )
    conductor_auth_key: str | None = Field(
        default=None,
        validation_alias="CONDUCTOR_AUTH_KEY",
        description="The Conductor key to use, where the server asks for one.",
    )
    conductor_auth_secret: SecretStr | None = Field(
        default=None,
        validation_alias="CONDUCTOR_AUTH_SECRET",
        description="That key's secret.",
    )
    conductor_ca_file: Path | None = Field(
        default=None,
        description="Certificates of an authority of your own, to believe Conductor by.",
    )
    single_writer: Literal["off", "warn", "enforce"] = Field(
        default="warn",
        description="What a worker does about a second active workflow on a branch it is to write.",
    )
    log_format: Literal["text", "json"] = Field(
        default="text",
        description="Lines about attempts on standard error: text for people, JSON for programs.",
    )
    listen: str | None = Field(
        default=None,
        description="Where `perago start` answers for its health and metrics: '127.0.0.1:9464'.",
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
    spark_master: str | None = Field(
        default=None,
        validation_alias="SPARK_MASTER",
        description="Where Spark computes: 'spark://HOST:7077', 'local[4]'; unless set, all of "
        "this machine.",
    )
    spark_remote: SecretStr | None = Field(
        default=None,
        validation_alias="SPARK_REMOTE",
        description="A Spark Connect server to compute with instead: 'sc://HOST:15002'.",
    )
    spark_conf: dict[str, str] = Field(
        default_factory=dict,
        description="Further settings of Spark, as JSON; or one each in "
        "PERAGO_SPARK_CONF_spark_sql_shuffle_partitions and the like.",
        repr=False,
    )
    spark_success_files: Literal["keep", "drop"] = Field(
        default="drop", description="What becomes of the _SUCCESS files that Spark leaves."
    )
    spark_lineage: Literal["off", "on"] = Field(
        default="off",
        description="Whether Spark tells the lineage of its own jobs, where OpenLineage is set up.",
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
                variable_of(name) for name in sorted(LAKEFS_FIELDS) if getattr(self, name) is None
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
    def conductor_login(self) -> ConductorLogin:
        """The server's plain address, and our key and its secret where there are any.

        Raises RuntimeConfigError, naming what isn't set or is no address.
        """
        if self.conductor_url is None:
            raise RuntimeConfigError(
                "no Conductor is set up: CONDUCTOR_SERVER_URL is not set",
                fix="set it in the environment or in .env (http://HOST:PORT/api), or start one "
                "here with `perago stack up`",
            )
        key, secret = self.conductor_auth_key, self.conductor_auth_secret
        if (key is None) != (secret is None):
            given, missing = "CONDUCTOR_AUTH_KEY", "CONDUCTOR_AUTH_SECRET"
            if key is None:
                given, missing = missing, given
            raise RuntimeConfigError(
                f"{given} is set, and {missing} isn't",
                fix="set both, or neither for a server that asks for no key",
            )
        return ConductorLogin(
            _plain_address("CONDUCTOR_SERVER_URL", self.conductor_url), key, secret
        )

    @field_validator("spark_master")
    @classmethod
    def _connect_has_its_own_variable(cls, value: str | None) -> str | None:
        if value is not None and value.startswith("sc://"):
            raise PydanticCustomError("remote", "a Spark Connect server is named by SPARK_REMOTE")
        return value

    @field_validator("spark_remote")
    @classmethod
    def _is_a_connect_server(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _CONNECT_SERVER.match(value.get_secret_value()):
            raise PydanticCustomError(
                "remote", "a Spark Connect server is sc://HOST[:PORT][/;KEY=VALUE;...]"
            )
        return value

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

    @property
    def object_cache(self) -> Path:
        return (self.cache or self.home / "cache").absolute()

    @property
    def logs(self) -> Path:
        return self.home.absolute() / "logs"


class ConductorLogin(NamedTuple):
    """Where Conductor's API is, and the key to use there, if any."""

    address: str
    key: str | None
    secret: SecretStr | None


def load_settings(**given: object) -> Settings:
    """The settings in force; ``given`` ones (from a command line) win over the environment.

    A server that `perago stack` started here is used where no other one is named. Its settings
    count as a whole or not at all: its key is of no use to another server.
    Raises RuntimeConfigError naming the variable, its value and what is allowed.
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
        for fields in SERVERS_FIELDS:
            if not settings.model_fields_set.isdisjoint(fields):
                own = {name: getattr(settings, name) for name in fields}
                ours = ours.model_copy(update=own)
    except SettingsError as error:  # PERAGO_SPARK_CONF, the one that is JSON
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
    """Those of .env and, before them, of the environment."""
    if not Path(".env").is_file():
        return dict(os.environ)
    from dotenv import dotenv_values

    return dotenv_values(".env") | dict(os.environ)


def single_spark_settings(environment: Mapping[str, str | None]) -> dict[str, str]:
    """Spark's settings that have a variable each: ``_`` stands for ``.``, and ``__`` for ``_``."""
    return {
        "_".join(part.replace("_", ".") for part in name.split("__")): value
        for variable, value in environment.items()
        if (name := variable.removeprefix(SPARK_CONF_PREFIX)) != variable and name and value
    }


def is_secret(spark_setting: str) -> bool:
    """Whether a setting of Spark's may hold a secret, by its name: as Spark itself judges."""
    return bool(_SECRET_NAME.search(spark_setting))


def plain_endpoint(url: str) -> str:
    """The lakeFS server's address, with or without the API's path as lakectl's settings have it.

    Raises RuntimeConfigError if it isn't an http(s) address.
    """
    return _plain_address("LAKECTL_SERVER_ENDPOINT_URL", url).removesuffix(API_PATH)


def _plain_address(variable: str, url: str) -> str:
    parts = urlsplit(url.strip())
    if parts.username or parts.password:  # not shown: it may hold a secret
        raise RuntimeConfigError(
            f"{variable} has credentials in it",
            fix="leave only the address, and set the key and its secret in their own variables",
        )
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise RuntimeConfigError(
            f"{variable}={url!r} is not the address of a server",
            fix="give it as http://HOST:PORT or https://HOST",
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def variable_of(field: str) -> str:
    """The environment variable that sets a field."""
    alias = Settings.model_fields[field].validation_alias
    return alias if isinstance(alias, str) else f"PERAGO_{field.upper()}"


def _spelled(place: str, value: object) -> str:
    """``VARIABLE=value``; a secret's value is left out. A field with an alias is found by it."""
    name = variable_of(place) if place in Settings.model_fields else place
    return name if name in _UNTOLD else f"{name}={value!s:.80}"


LAKEFS_FIELDS = frozenset({"lakefs_endpoint", "lakefs_access_key_id", "lakefs_secret_access_key"})
CONDUCTOR_FIELDS = frozenset({"conductor_url", "conductor_auth_key", "conductor_auth_secret"})

SERVERS_FIELDS = (LAKEFS_FIELDS, CONDUCTOR_FIELDS)
"""What names a server and our way in: each taken from one place, never from two."""

SECRETS = frozenset(
    variable_of(name)
    for name in ("lakefs_secret_access_key", "conductor_auth_secret", "spark_remote")
)
_UNTOLD = SECRETS | {variable_of("spark_conf")}  # which may hold some, among other things
