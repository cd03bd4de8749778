"""Where episodes run: each on a thread of the service, or many in a worker process. One lane does one call at a time."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import pickle
import queue
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from multiprocessing.connection import Connection

from .episodes import Call, Episodes, Reply, detail_of, refusal
from .worlds import UnusableWorld, WorldFault, WorldSource

#: Threads that hang in an environment before the service opens no more episodes.
MAX_STUCK = 64
_MAX_IDLE_THREADS = 64
#: A worker imports the environment's module first, which may load a model.
_START_S = 120.0
_STOP_S = 2.0


class Full(Exception):
    """No lane can be had; the message says why."""


def _settle(future: Future[Reply], reply: Reply) -> None:
    """Answers a call, unless the service ended while it ran."""
    with contextlib.suppress(InvalidStateError):
        future.set_result(reply)


def _stop(lanes: Sequence[ThreadLane | ProcessLane]) -> None:
    """Ends lanes, which have one short time together to close their environments."""
    for lane in lanes:
        lane.stop()
    end = time.monotonic() + _STOP_S
    for lane in lanes:
        lane.join(max(0.0, end - time.monotonic()))


class ThreadLane:
    """A thread with one environment at a time: an environment's calls all come from the same thread."""

    def __init__(self, source: WorldSource, timeout_s: float):
        self.lost: str | None = None
        self._timeout_s = timeout_s
        self._calls: queue.SimpleQueue[tuple[Call, Future[Reply]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(Episodes(source),), name="ragen-env", daemon=True)
        self._thread.start()

    @property
    def stuck(self) -> bool:
        return self.lost is not None and self._thread.is_alive()

    def _run(self, episodes: Episodes) -> None:
        while (job := self._calls.get()) is not None and self.lost is None:
            call, future = job
            if future.set_running_or_notify_cancel():
                reply = episodes.carry_out(call)
                _settle(future, reply)
        episodes.close()

    async def call(self, call: Call) -> Reply:
        if self.lost is not None:
            return refusal(410, self.lost, over=True)
        future: Future[Reply] = Future()
        self._calls.put((call, future))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._timeout_s)
        except asyncio.TimeoutError:
            self.lost = f"the environment's {call.op} did not return within {self._timeout_s:g} s"
            self.stop()
            return refusal(504, self.lost, over=True)

    def stop(self) -> None:
        self._calls.put(None)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)


class Threads:
    """A thread for each episode, used again after it."""

    def __init__(self, source: WorldSource, timeout_s: float):
        self._source = source
        self._timeout_s = timeout_s
        self._idle: list[ThreadLane] = []
        self._lost: list[ThreadLane] = []

    def acquire(self) -> ThreadLane:
        """Raises Full."""
        self._lost = [lane for lane in self._lost if lane.stuck]
        if len(self._lost) >= MAX_STUCK:
            raise Full(f"{MAX_STUCK} environments hang and cannot be ended: restart the service with --workers")
        return self._idle.pop() if self._idle else ThreadLane(self._source, self._timeout_s)

    def release(self, lane: ThreadLane) -> None:
        if lane.lost is not None:
            self._lost.append(lane)
        elif len(self._idle) < _MAX_IDLE_THREADS:
            self._idle.append(lane)
        else:
            lane.stop()

    async def start(self) -> None:
        return None

    def stop(self) -> None:
        _stop(self._idle)


class ProcessLane:
    """A process with many episodes. It is driven by a thread, which ends it when a call does not return in time."""

    def __init__(self, number: int, source: WorldSource, timeout_s: float):
        self.lost: str | None = None
        self.episodes = 0
        self._name = f"worker {number}"
        self._timeout_s = timeout_s
        self._calls: queue.SimpleQueue[tuple[Call | None, Future[Reply]]] = queue.SimpleQueue()
        context = multiprocessing.get_context("spawn")
        self._connection, child = context.Pipe()
        self._process = context.Process(target=_work, args=(child, source), name=self._name)
        self._process.start()
        child.close()
        self._ready: Future[Reply] = Future()
        self._driver = threading.Thread(target=self._drive, name=self._name, daemon=True)
        self._driver.start()

    async def started(self) -> Reply:
        return await asyncio.wrap_future(self._ready)

    async def call(self, call: Call) -> Reply:
        if self.lost is not None:
            return refusal(410, self.lost, over=True)
        future: Future[Reply] = Future()
        self._calls.put((call, future))
        return await asyncio.wrap_future(future)

    def stop(self) -> None:
        self._calls.put((None, Future()))

    def join(self, timeout_s: float) -> None:
        """Waits for the process to end, and ends it where it does not."""
        self._driver.join(timeout_s)
        self._process.kill()

    def _drive(self) -> None:
        ready = self._received(_START_S, "its start")
        if ready.status == 422:
            self.lost = f"{self._name} could not start: {detail_of(ready)}"
        self._ready.set_result(ready)
        while True:
            call, future = self._calls.get()
            if call is None:
                break
            if self.lost is not None:
                _settle(future, refusal(410, self.lost, over=True))
                continue
            try:
                self._connection.send(call)
            except (OSError, ValueError):
                self.lost = f"{self._name} ended{self._exit()}"
                _settle(future, refusal(410, self.lost, over=True))
                continue
            _settle(future, self._received(self._timeout_s, f"the environment's {call.op}"))
        self._connection.close()
        self._process.join(_STOP_S)
        self._process.kill()

    def _received(self, timeout_s: float, what: str) -> Reply:
        try:
            if self._connection.poll(timeout_s):
                reply: Reply = self._connection.recv()
                return reply
            self.lost = f"{self._name} was ended: {what} did not return within {timeout_s:g} s"
            self._process.kill()
            return refusal(504, self.lost, over=True)
        except (EOFError, OSError, pickle.UnpicklingError):
            self.lost = f"{self._name} ended{self._exit()} during {what}"
            return refusal(410, self.lost, over=True)

    def _exit(self) -> str:
        self._process.join(_STOP_S)
        code = self._process.exitcode
        if code is None:
            return ""
        return f" by signal {signal.Signals(-code).name}" if code < 0 else f" with exit code {code}"


class Processes:
    """Worker processes. Each episode stays in one; a worker that ended is replaced by the next reset."""

    def __init__(self, source: WorldSource, timeout_s: float, count: int):
        self._source = source
        self._timeout_s = timeout_s
        self._count = count
        self._started = 0
        self._lanes: list[ProcessLane] = []

    async def start(self) -> None:
        """Raises UnusableWorld where a worker does not come up."""
        try:
            pickle.dumps(self._source)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UnusableWorld(
                f"{self._source.name} cannot be sent to a worker ({error}): give a class or function at the top level of a "
                "module and plain arguments, or leave workers out"
            ) from None
        self._fill()
        for reply in await asyncio.gather(*(lane.started() for lane in self._lanes)):
            if reply.status != 200:
                raise UnusableWorld(detail_of(reply))

    def _fill(self) -> None:
        for lost in [lane for lane in self._lanes if lane.lost is not None]:
            self._lanes.remove(lost)
            lost.stop()
        while len(self._lanes) < self._count:
            self._started += 1
            self._lanes.append(ProcessLane(self._started, self._source, self._timeout_s))

    def acquire(self) -> ProcessLane:
        self._fill()
        lane = min(self._lanes, key=lambda one: one.episodes)
        lane.episodes += 1
        return lane

    def release(self, lane: ProcessLane) -> None:
        lane.episodes -= 1

    def stop(self) -> None:
        _stop(self._lanes)


def _work(connection: Connection, source: WorldSource) -> None:
    """What a worker process does until the service closes its connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    episodes = Episodes(source)
    try:
        source.make().close()
        connection.send(Reply(200, b"{}"))
    except (UnusableWorld, WorldFault) as error:
        connection.send(refusal(422, str(error)))
        return
    with contextlib.suppress(EOFError, OSError):
        while True:
            connection.send(episodes.carry_out(connection.recv()))
    episodes.close()
