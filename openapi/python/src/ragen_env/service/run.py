"""Starts a service: derives the definition, listens, registers the environment and says what to do next."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import FrameType
from typing import Any

import uvicorn

from .. import models as m
from ..client import Client
from ..errors import ProblemError, RagenError
from ..retry import RetryPolicy
from .app import Sessions, application
from .definition import Derived, Overrides, derive
from .forms import Json
from .lanes import Processes, Threads
from .worlds import UnusableWorld, WorldFault, WorldSource

DEFAULT_PORT = 9001
_MAX_PORT = 65_535
_VERSION = re.compile(r"-v\d+$")
#: Longer than the environment server keeps an idle connection, so that none is closed under a request.
_KEEP_ALIVE_S = 75
_SHUTDOWN_S = 5


class ServiceError(Exception):
    """A service that cannot start; the message says why and what to do."""


def serve(
    make: str | Callable[..., Any],
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    workers: int = 0,
    kwargs: Mapping[str, Any] | None = None,
    actions: Sequence[str] | None = None,
    example_actions: Sequence[str] | None = None,
    register: str | None = None,
    env_id: str | None = None,
    url: str | None = None,
    token: str | None = None,
    replace: bool = False,
    title: str | None = None,
    instruction: str | None = None,
    max_steps: int | None = None,
    seed: bool | None = None,
    timeout_s: float = 10.0,
    idle_s: float = 3600.0,
    max_sessions: int = 2048,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serves an environment over HTTP until it is interrupted.

    Args:
        make: a class or function that makes an environment, ``module:Class``, or an id of Gymnasium
        workers: processes that play the episodes; without any each episode has a thread of this process
        kwargs: arguments of ``make``
        actions: the names of the actions, where the environment has none
        example_actions: examples of actions, where the environment takes any text
        register: address of an environment server that the environment is registered at
        env_id: id there; ``me/<Name>-v0`` unless it is given
        url: address of this service as the environment server reaches it
        token: of the environment server; the variable RAGEN_TOKEN where it is not given
        replace: replaces an environment of that id
        seed: whether the same seed gives the same episode; tried out where it is not given
        timeout_s: how long one reset or step may take; its episode ends after it
        idle_s: how long a session may be unused
        max_sessions: sessions at a time
        on_ready: called with the address once the service answers

    Raises:
        ServiceError: the environment, the port or the registration was refused.
    """
    for name, value, least in (("workers", workers, 0), ("max_steps", max_steps, 1), ("max_sessions", max_sessions, 1)):
        if value is not None and value < least:
            raise ServiceError(f"{name} must be at least {least}, got {value}")
    for name, duration in (("timeout_s", timeout_s), ("idle_s", idle_s)):
        if not duration > 0:
            raise ServiceError(f"{name} must be above 0, got {duration:g}")
    if not 0 <= port <= _MAX_PORT:
        raise ServiceError(f"port must be from 0 to {_MAX_PORT}, got {port}")
    source = WorldSource(make, dict(kwargs or {}), actions, example_actions)
    try:
        derived = derive(source, timeout_s, Overrides(title, instruction, max_steps, seed))
        with _listening(host, port) as listening:
            shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
            own = f"http://{f'[{shown}]' if ':' in shown else shown}:{listening.getsockname()[1]}"
            derived.definition["url"] = url or own
            lanes = Processes(source, timeout_s, workers) if workers > 0 else Threads(source, timeout_s)
            sessions = Sessions(lanes, max_sessions, idle_s)
            registration = None
            if register is not None:
                named = env_id or default_id(derived.name)
                registration = Registration(register, token, named, derived.definition, replace)
            try:
                asyncio.run(_run(listening, sessions, lanes, derived, own, registration, on_ready))
            finally:
                lanes.stop()
    except (UnusableWorld, WorldFault) as error:
        raise ServiceError(str(error)) from error


def default_id(name: str) -> str:
    """The id of an environment in the namespace ``me``."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
    return f"me/{name}" if _VERSION.search(name) else f"me/{name}-v0"


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; without it a reply waits 40 ms for its second segment.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise ServiceError(f"port {port} of {host} is taken: --port names another, --port 0 takes a free one") from None
        raise ServiceError(f"cannot listen at {host}, port {port}: {error.strerror or error}") from None
    return listening


class _Server(uvicorn.Server):
    """Ends at the first signal when the calls in progress are done, at the second at once."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = True
        elif calls := len(self.server_state.tasks):
            said = f"requests in progress ({calls}) get up to {_SHUTDOWN_S} s; a second signal ends it at once"
            print(f"ragen-env: ending: {said}", file=sys.stderr, flush=True)
        super().handle_exit(sig, frame)


async def _run(
    listening: socket.socket,
    sessions: Sessions,
    lanes: Threads | Processes,
    derived: Derived,
    own: str,
    registration: Registration | None,
    on_ready: Callable[[str], None] | None,
) -> None:
    await lanes.start()
    config = uvicorn.Config(
        application(sessions, derived.definition),
        log_level="warning",
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    failure: ServiceError | None = None
    if registration is not None and server.started:
        registering = asyncio.wrap_future(_on_thread(registration.carry_out))
        both: list[asyncio.Future[Any]] = [registering, serving]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if registering.done():
            try:
                done = registering.result()
                print(summary(derived, own, registration, done), flush=True)
            except ServiceError as error:
                failure = error
                server.should_exit = True
    elif server.started:
        print(summary(derived, own, None, None), flush=True)
    if failure is None and server.started and on_ready is not None:
        on_ready(own)
    await serving
    if failure is not None:
        raise failure


def _on_thread(work: Callable[[], str]) -> Future[str]:
    """Runs blocking work on a thread that the end of the program does not wait for."""
    future: Future[str] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is read
            future.set_exception(error)

    threading.Thread(target=run, name="registration", daemon=True).start()
    return future


class Registration:
    """The registration of an environment at an environment server."""

    def __init__(self, server: str, token: str | None, env_id: str, definition: dict[str, Json], replace: bool):
        self.server = server.rstrip("/")
        self.env_id = env_id
        self.warnings: list[str] = []
        self._token = token
        self._definition = definition
        self._replace = replace

    def carry_out(self) -> str:
        """What was done: ``registered`` or ``replaced``. Keeps the warnings of the check. Raises ServiceError."""
        retry = RetryPolicy(patience_s=3.0, attempts=1)
        try:
            with Client(self.server, token=self._token, transport="http", timeout_s=90.0, retry=retry) as client:
                return self._carry_out(client)
        except ProblemError as error:
            raise ServiceError(self._explained(error)) from error
        except (RagenError, ValueError) as error:
            raise ServiceError(f"{self.env_id} could not be registered: {error}") from error

    def _carry_out(self, client: Client) -> str:
        definition: Any = self._definition
        try:
            self._keep_warnings(client.register(self.env_id, definition))
            return "registered"
        except ProblemError as error:
            if error.code != "environment_exists" or not (self._replace or self._is_ours(client)):
                raise
        self._keep_warnings(client.replace(self.env_id, definition))
        return "replaced"

    def _keep_warnings(self, registered: m.Registration) -> None:
        self.warnings = list(registered["report"].get("warnings", []))

    def _is_ours(self, client: Client) -> bool:
        """The id was registered for a service at the same address: this one, before it was started again."""
        try:
            registered: Any = client.get_definition(self.env_id)
        except ProblemError:
            return False
        return bool(registered["definition"].get("url") == self._definition["url"])

    def _explained(self, error: ProblemError) -> str:
        faults = "".join(f"\n  {fault['pointer']}: {fault['detail']}" for fault in error.problem.get("errors", []))
        said = f"{self.server} refused {self.env_id}: {error.problem['detail']}{faults}"
        if error.status == 401 or error.status == 403:
            return f"{said}\n  Give a token with the scope register as --token or in RAGEN_TOKEN."
        if error.code == "environment_exists":
            return f"{said}\n  --replace replaces it, --id names another."
        if "/definition/url" in faults:
            return f"{said}\n  A server on your machine allows it with: npm run env-server -- --remote-networks 127.0.0.1/32"
        return said


def summary(derived: Derived, own: str, registration: Registration | None, done: str | None) -> str:
    """What a service says when it is ready."""
    definition = derived.definition
    space = definition["action_space"]
    if space["type"] == "Discrete":
        more = len(space["names"]) - 12
        actions = ", ".join(space["names"][:12]) + (f" and {more} more" if more > 0 else "")
    else:
        actions = f"{space['type']}, e.g. {repr(definition['example_action'])[:80]}"
    capabilities = definition["capabilities"]
    lines = [
        f"{definition['title']} is served at {own} (Ctrl-C stops it)",
        f"  actions  {actions}",
        f"  steps    at most {definition['max_episode_steps']} an episode",
        f"  seeds    {'the same seed gives the same episode' if capabilities['seed'] else 'off'}",
        *(f"  note     {note}" for note in derived.notes),
    ]
    if registration is not None:
        servers = f" --servers {registration.server}"
        lines += [
            f"{done} as {registration.env_id} at {registration.server}",
            *(f"  note     {warning}" for warning in registration.warnings),
            "Next:",
            f"  npm run trainer -- init {registration.env_id}{servers}",
            f"  npm run trainer -- train {config_name(registration.env_id)}",
        ]
    else:
        lines.append("Register it with --register URL, the address of an environment server.")
    return "\n".join(lines)


def config_name(env_id: str) -> str:
    """The file that `trainer init` writes for an environment, e.g. ``Guess-v0.yaml`` for ``me/Guess-v0``."""
    return f"{env_id.rpartition('/')[2]}.yaml"
