"""What a supervisor tells its poller, over a private socket pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perago.model.attempt import Delivery
    from perago.model.outcome import TaskReport
    from perago.ports.orchestrator import Orchestrator


@dataclass(frozen=True, slots=True)
class Begin:
    """The first order: whom to ask, and under which name."""

    orchestrator: Orchestrator
    worker_id: str


@dataclass(frozen=True, slots=True)
class Serve:
    task_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    slots: int
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take nothing ahead any more."""


@dataclass(frozen=True, slots=True)
class Hold:
    delivery: Delivery
    heartbeat_seconds: float
    leased_at: float


@dataclass(frozen=True, slots=True)
class LetGo:
    delivery_id: str
    tell: bool


@dataclass(frozen=True, slots=True)
class SpeakFor:
    delivery: Delivery
    report: TaskReport


@dataclass(frozen=True, slots=True)
class GiveBack:
    delivery: Delivery


@dataclass(frozen=True, slots=True)
class StopAsking:
    """Take no more work."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """The supervisor turns. Without it nobody's leases are kept."""


Order = Begin | Serve | Offer | Withdraw | Hold | LetGo | SpeakFor | GiveBack | StopAsking | Pulse
