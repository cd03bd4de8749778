"""Runs untrusted Python programs, each test in a separate process that can reach only its input and output.

Started by sandbox.ts, inside new namespaces where there are any:

    harness.py SPACES UID

Three processes share the work, so that no program finds anything but its own test in memory that it inherits:

    the harness  puts up the walls of the machine, and forks a monitor for each test; it reads nothing
    the monitor  forks the program, then collects what it writes, and ends with the test
    the program  waits for its test, reads it, encloses itself, and runs

The first line written says which walls stand; then every test read is answered by a line, followed by the bytes of the
output that the line announces. Tests come one at a time, the next one after the answer. Expected outputs never come
here, so that a program that breaks its harness gains nothing.

    test:   HEADER_BYTES of JSON and spaces, then as many bytes of JSON as its "bytes" says:
            {"cpu_s", "wall_s", "total_s" (left for this test), "memory_mb", "output_bytes", "bytes"}
            {"program", "function" (null: stdin to stdout), "input"}
    answer: {"status": "ok" | "error" | "invalid" | "timeout" | "output", "error", "bytes"}

The program passes the header on over a separate pipe, says there that its walls stand, then why its text does not compile
("invalid"), and closes the pipe before its own code begins. What goes wrong before the walls stand, and every fault of
the harness itself, is a last line {"fault"}: never a result.
"""

import json
import os
import select
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from walls import LIBC, PR_SET_PDEATHSIG, Walls  # noqa: E402

del sys.path[0]

ERROR_BYTES = 4096
PIECE_BYTES = 65536
HEADER_BYTES = 256
# How a monitor ends when no test comes any more.
NO_TEST = 3
# What reading a test and putting up the walls of its program may take on a busy machine.
WALLS_S = 10
STAND = b"the walls stand"
# Descriptors in a program, in this order: input, output, errors, answer of a called function, status, Landlock rules.
ANSWER, STATUS, RULES = 3, 4, 5
MAX_DESCRIPTORS = 1024


class Fault(Exception):
    """Something other than the program went wrong."""


def read_exactly(source, count):
    """Bytes, fewer where the source ends."""
    pieces = []
    while count > 0:
        piece = os.read(source, min(count, PIECE_BYTES))
        if not piece:
            break
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


# --------------------------------------------------------------------------------------- in the program

def run_program(out, null, walls, monitor):
    """Reads a test, puts up the walls, then runs the program. Never returns."""
    try:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        header = read_exactly(0, HEADER_BYTES)
        os.write(STATUS, header)
        limits = json.loads(header)
        test = json.loads(read_exactly(0, limits["bytes"]))
        given = os.memfd_create("input")
        text = test["input"] if test["function"] is None else ""
        data = memoryview(text.encode("utf-8", "surrogatepass"))
        while data:
            data = data[os.write(given, data) :]
        os.lseek(given, 0, os.SEEK_SET)
        os.dup2(given, 0)
        # A called function answers on a separate pipe; its printed output is discarded.
        os.dup2(out if test["function"] is None else null, 1)
        if walls.rules is not None:
            os.dup2(walls.rules, RULES)
            walls.rules = RULES
        os.closerange(RULES + 1, MAX_DESCRIPTORS)
        walls.enclose(limits, monitor)
        sys.setrecursionlimit(10_000)
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)
        os.write(STATUS, STAND)
        program = compile(test["program"], "program.py", "exec")
        os.close(STATUS)
    except BaseException as error:
        os.write(STATUS, f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:ERROR_BYTES])
        os._exit(1)
    code = 1
    try:
        space = {"__name__": "__main__", "__builtins__": __builtins__}
        if test["function"] is None:
            exec(program, space)
            sys.stdout.flush()
        else:
            answer = json.dumps(call_function(program, space, test["function"], test["input"])).encode()
            while answer:
                answer = answer[os.write(ANSWER, answer) :]
        code = 0
    except SystemExit as stop:
        sys.stdout.flush()
        code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException as error:
        try:
            sys.stdout.flush()
            name = type(error).__name__
            os.write(2, f"{name}: {str(error)[:500]}".encode("utf-8", "replace"))
        except BaseException:
            pass
    os._exit(code & 255)


def call_function(program, space, name, arguments):
    exec(program, space)
    if name in space:
        function = space[name]
    else:
        function = getattr(space["Solution"](), name)
    return function(*arguments)


# --------------------------------------------------------------------------------------- in the monitor

def fork_program(walls, null):
    """The program's number and the ends of its output, its errors and its status."""
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    status, status_end = os.pipe()
    monitor = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(err_end, 2)
            os.dup2(out_end, ANSWER)
            os.dup2(status_end, STATUS)
            run_program(out_end, null, walls, monitor)
        finally:
            os._exit(1)
    for end in (out_end, err_end, status_end):
        os.close(end)
    return child, out, err, status


def end_with_server(wait_s, ends=()):
    """Waits until something comes from the ends; during a test nothing comes from the server but its end."""
    ready = select.select([0, *ends], [], [], wait_s)[0]
    if 0 in ready:
        os._exit(1)
    return ready


def await_test(status):
    """The limits of the next test, once it is there; None where the server has ended."""
    header = read_exactly(status, HEADER_BYTES)
    return json.loads(header) if len(header) == HEADER_BYTES else None


def await_walls(status):
    """What the program said after that its walls stand. Raises Fault where they do not; until then it reads its test."""
    said = b""
    deadline = time.monotonic() + WALLS_S
    while not said.startswith(STAND):
        if not select.select([status], [], [], max(deadline - time.monotonic(), 0))[0]:
            raise Fault(f"the walls of a program did not stand within {WALLS_S} s")
        piece = os.read(status, ERROR_BYTES)
        if not piece:
            raise Fault(f"the walls of a program do not stand: {said.decode('utf-8', 'replace') or 'it ended before'}")
        said += piece
    return said[len(STAND) :]


def collect(limits, ends, deadline):
    """Reads what the program writes until it closes all ends, takes too long or writes too much to the first."""
    out = ends[0]
    texts = {end: bytearray() for end in ends}
    open_ends = set(ends)
    while open_ends:
        left = deadline - time.monotonic()
        ready = end_with_server(left, open_ends) if left > 0 else []
        if not ready:
            return "timeout", texts
        for end in ready:
            piece = os.read(end, PIECE_BYTES)
            if not piece:
                open_ends.discard(end)
            elif end != out:
                texts[end] += piece[: max(ERROR_BYTES - len(texts[end]), 0)]
            else:
                texts[end] += piece
                if len(texts[end]) > limits["output_bytes"]:
                    return "output", texts
    return "ok", texts


def ended(child, deadline):
    """How the child ended and the processor seconds it took; None where it continues. It may close its ends and do so."""
    try:
        end = [os.pidfd_open(child)]
    except (AttributeError, OSError):
        # An older Python or kernel: asked again every millisecond.
        end = []
    while (left := deadline - time.monotonic()) > 0:
        done, how, usage = os.wait4(child, os.WNOHANG)
        if done:
            return how, usage.ru_utime + usage.ru_stime
        end_with_server(left if end else 0.001, end)
    return None


def judge_end(limits, end, error):
    """What the end of a child says: status and error. Raises Fault where something else ended it."""
    how, cpu_s = end
    if os.WIFSIGNALED(how):
        number = os.WTERMSIG(how)
        if number == signal.SIGXCPU or (number == signal.SIGKILL and cpu_s >= limits["cpu_s"]):
            return "timeout", error or f"ended by {signal.Signals(number).name}"
        if number == signal.SIGKILL:
            raise Fault("a program was killed from outside, perhaps because the machine has no memory left")
        return "error", error or f"ended by {signal.Signals(number).name}"
    return ("ok" if os.WEXITSTATUS(how) == 0 else "error"), error


def run_test(walls, null):
    """Answers the next test."""
    child, out, err, status = fork_program(walls, null)
    limits = await_test(status)
    if limits is None:
        os._exit(NO_TEST)
    deadline = time.monotonic() + limits["total_s"]
    end = None
    try:
        invalid = await_walls(status)
        deadline = min(deadline, time.monotonic() + limits["wall_s"])
        outcome, texts = collect(limits, (out, err, status), deadline)
        end = ended(child, deadline) if outcome == "ok" else None
    finally:
        if end is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        for pipe in (out, err, status):
            os.close(pipe)
    error = texts[err].decode("utf-8", "replace")
    if end is not None:
        outcome, error = judge_end(limits, end, error)
    elif outcome == "ok":
        outcome = "timeout"
    invalid += texts[status]
    if invalid:
        outcome, error = "invalid", invalid.decode("utf-8", "replace")
    output = texts[out] if outcome == "ok" else b""
    say({"status": outcome, "error": error, "bytes": len(output)}, output)


# --------------------------------------------------------------------------------------- in the harness

def say(line, data=b""):
    for part in (json.dumps(line).encode() + b"\n", data):
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(1, rest) :]


def reserve_descriptors(null):
    """Keeps the numbers that mean something in a child from being given to anything else."""
    for number in (ANSWER, STATUS, RULES):
        if number != null:
            os.dup2(null, number)


def main():
    spaces, uid = sys.argv[1], int(sys.argv[2])
    # The first process of a namespace gets no signal from inside that it does not handle: so it handles none.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    null = os.open("/dev/null", os.O_WRONLY)
    reserve_descriptors(null)
    # Imported here so that no program has to read them from disk.
    import bisect, collections, copy, decimal, fractions, functools, heapq, io, itertools, math, operator, random, re, statistics, string, typing  # noqa: E401, F401
    walls = Walls(spaces, uid)
    say({"walls": walls.names})
    while True:
        monitor = os.fork()
        if monitor == 0:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            in_process(lambda: run_test(walls, null))
        end = os.waitpid(monitor, 0)[1]
        if end != 0:
            os._exit(0 if os.waitstatus_to_exitcode(end) == NO_TEST else 1)


def in_process(work):
    """Does the work and ends the process; a fault of it is the last line."""
    try:
        work()
    except Exception as error:
        say({"fault": f"{type(error).__name__}: {error}"})
        os._exit(1)
    os._exit(0)


in_process(main)
