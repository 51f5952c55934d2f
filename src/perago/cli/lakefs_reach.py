"""Getting to a lakeFS and being let in: what each way of not getting there means.

Judgements only; what they judge was heard by :func:`perago.adapters.lakefs.greeting.greet`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from perago.adapters.lakefs.greeting import Greeting, Silence, Unheard
from perago.cli.diagnosis import Finding
from perago.cli.phrasing import clock_difference, duration
from perago.errors import RuntimeConfigError

if TYPE_CHECKING:
    from perago.adapters.lakefs.access import LakeFSAccess

SQUASHING_VERSION = (1, 48)
"""The first that squashes merges: an older one ignores the wish, and merges with two parents."""
LISTING_VERSION = (1, 74)
"""The first that lists hidden branches, among which `perago gc` looks for leftovers."""

NOTICEABLE_SECONDS = 60.0
REFUSED_SECONDS = 15 * 60.0
"""lakeFS's S3 gateway refuses a request that was signed longer ago, or later, than this."""

_ENDPOINT = "LAKECTL_SERVER_ENDPOINT_URL"
_STRANGER = "error authenticating request"
_FIXES = {
    Silence.NO_SUCH_NAME: f"correct the host in {_ENDPOINT}, or the machine's DNS",
    Silence.NOBODY_LISTENS: f"start lakeFS (`perago stack up`), or correct {_ENDPOINT}",
    Silence.TIMEOUT: "see whether a firewall is in between, or whether lakeFS hangs",
    Silence.PROXY: "correct HTTP_PROXY or HTTPS_PROXY, or name the host in NO_PROXY",
    Silence.UNTRUSTED: "name the file with its authority's certificate by PERAGO_LAKEFS_CA_FILE",
    Silence.OTHER_NAME: f"put a name that is in the certificate into {_ENDPOINT}",
    Silence.OTHER_TIME: "have the certificate renewed, or set this machine's clock",
    Silence.NO_TLS: f"write http:// instead of https:// in {_ENDPOINT}",
    Silence.CUT: "see the log of lakeFS, or of whatever stands in front of it",
}


def proxy_in_use(access: LakeFSAccess) -> Finding:
    """No fault by itself, but who looks for one wants to know. Its password isn't shown."""
    try:
        proxy = access.proxy
    except RuntimeConfigError as error:
        return Finding("proxy", "fail", error.message, error.fix)
    if proxy is None:
        return Finding("proxy", "ok", "none for this address")
    parts = urlsplit(proxy)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return Finding("proxy", "ok", f"through {shown}, by the environment")


def judge_server(heard: Greeting | Unheard, endpoint: str) -> Finding:
    """Whether a lakeFS answers there: one that is asked without a key says that it wants one."""
    if isinstance(heard, Unheard):
        detail = f"{endpoint}: {heard.why.value}: {heard.detail}"
        return Finding("server", "fail", detail, _FIXES[heard.why])
    if heard.status == 407:  # noqa: PLR2004 - HTTP's own numbers read best as they are
        fix = "give the proxy as http://NAME:PASSWORD@HOST:PORT"
        return Finding("server", "fail", "the proxy wants a password, or another one", fix)
    if heard.status == 400 and "HTTPS" in heard.body:  # noqa: PLR2004
        detail = f"{endpoint}: it wants TLS, and was asked without"
        fix = f"write https:// instead of http:// in {_ENDPOINT}"
        return Finding("server", "fail", detail, fix)
    if 300 <= heard.status < 400:  # noqa: PLR2004
        where = heard.location.partition("/api/v1")[0]
        detail = f"{endpoint}: it sends us on to {where}"
        return Finding("server", "fail", detail, f"put that address into {_ENDPOINT}")
    if heard.status >= 500:  # noqa: PLR2004
        detail = f"{endpoint}: status {heard.status} {_first_words(heard.body)}".rstrip()
        return Finding("server", "fail", detail, _FIXES[Silence.CUT])
    if heard.status != 401 or _STRANGER not in heard.body:  # noqa: PLR2004
        detail = (
            f"{endpoint}: something else than lakeFS answers there "
            f"(status {heard.status} {_first_words(heard.body)})"
        )
        fix = f"correct {_ENDPOINT}: host, port, and the path if lakeFS is below one"
        return Finding("server", "fail", detail, fix)
    return Finding("server", "ok", f"lakeFS answers at {endpoint} after {duration(heard.took)}")


def judge_clock(heard: Greeting) -> Finding:
    """How far the server's clock is from ours."""
    ahead = clock_difference(heard.date, heard.asked_at + heard.took / 2)
    if ahead is None:
        return Finding("clock", "ok", "the server doesn't say what time it has")
    detail = f"the server's is {duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} ours"
    fix = "let both machines keep time (NTP)"
    if abs(ahead) > REFUSED_SECONDS:
        detail += f"; it refuses object transfers beyond {duration(REFUSED_SECONDS)}"
        return Finding("clock", "fail", detail, fix)
    if abs(ahead) > NOTICEABLE_SECONDS:
        return Finding("clock", "warn", detail, fix)
    return Finding("clock", "ok", "the server's and ours agree")


def judge_key(heard: Greeting | Unheard, key: str) -> Finding:
    """Whether it knows our key, now that it was shown."""
    if isinstance(heard, Unheard):
        return Finding("key", "fail", f"{heard.why.value}: {heard.detail}", _FIXES[heard.why])
    if heard.status == 401:  # noqa: PLR2004
        detail = f"lakeFS doesn't accept the key {key!r} with this secret"
        fix = "correct LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
        return Finding("key", "fail", detail, fix)
    if heard.status != 200:  # noqa: PLR2004
        detail = f"asked with the key {key!r} it answers status {heard.status}"
        return Finding("key", "fail", f"{detail} {_first_words(heard.body)}", _FIXES[Silence.CUT])
    return Finding("key", "ok", f"{key} is known")


def judge_version(heard: Greeting) -> Finding:
    """Whether the server is new enough for what is asked of it."""
    said = _version_said(heard.body)
    digits = re.match(r"(\d+)\.(\d+)", said)
    if digits is None:  # a development build
        return Finding("version", "ok", f"lakeFS {said or 'of no known version'}")
    found = (int(digits[1]), int(digits[2]))
    if found < SQUASHING_VERSION:
        detail = f"lakeFS {said} can't squash a merge, so no publication would be accepted"
        return Finding(
            "version", "fail", detail, f"update it to {_dotted(LISTING_VERSION)} or newer"
        )
    if found < LISTING_VERSION:
        detail = f"lakeFS {said} doesn't list hidden branches: `perago gc` misses some leftovers"
        return Finding(
            "version", "warn", detail, f"update it to {_dotted(LISTING_VERSION)} or newer"
        )
    return Finding("version", "ok", f"lakeFS {said}")


def _version_said(body: str) -> str:
    try:
        return str(json.loads(body)["version"])
    except (ValueError, KeyError, TypeError):
        return ""


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _first_words(body: str) -> str:
    return " ".join(body.split())[:60]
