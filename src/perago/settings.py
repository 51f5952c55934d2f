"""Settings, from the environment and ``.env``: one model, validated before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from perago.errors import RuntimeConfigError


class Settings(BaseSettings):
    """What the machine decides. Tasks decide about themselves in their declarations."""

    model_config = SettingsConfigDict(
        env_prefix="PERAGO_", env_file=".env", extra="ignore", frozen=True
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
    def attempts(self) -> Path:
        return (self.workspace_root or self.home / "attempts").absolute()

    @property
    def logs(self) -> Path:
        return self.home.absolute() / "logs"


def load_settings(**given: object) -> Settings:
    """The settings in force; ``given`` ones (from a command line) win over the environment.

    Raises RuntimeConfigError naming the variable, its value and what is allowed.
    """
    try:
        return Settings(**{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        problems = "; ".join(
            f"PERAGO_{str(e['loc'][0]).upper()}={e['input']!s:.80}: {e['msg']}"
            for e in error.errors()
        )
        raise RuntimeConfigError(
            problems, fix="correct it in the environment or in .env, or unset it for the default"
        ) from None
