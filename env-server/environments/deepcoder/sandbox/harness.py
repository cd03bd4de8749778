"""Runs untrusted Python programs, each test in a process of its own that can reach nothing but its input and output.

Started by sandbox.ts, inside new namespaces where there are any:

    harness.py SPACES UID

The first line written says which walls stand; then every line read is a job and is answered by a result for each of its
inputs: a line, followed by the bytes of the output that the line announces. Expected outputs never come here, so that a
program that breaks its harness gains nothing.

    job:    {"program", "function" (null: stdin to stdout), "inputs": [...], "cpu_s", "wall_s", "total_s", "memory_mb",
             "output_bytes"}
    result: {"status": "ok" | "error" | "timeout" | "output", "error", "bytes"}

A child tells the harness over a separate pipe that its walls stand, and closes the pipe before the program begins. What
goes wrong until then, and every fault of the harness itself, is a last line {"fault"}: never a result.
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
# What putting up the walls of one child may take on a busy machine.
WALLS_S = 10
STAND = b"the walls stand"
# How a child ends whose text is no program: further tests of it can be spared.
NO_PROGRAM = 98
# Descriptors in a child, in this order: input, output, errors, answer of a called function, status, Landlock rules.
ANSWER, STATUS, RULES = 3, 4, 5
MOST_DESCRIPTORS = 1024


class Fault(Exception):
    """Something other than the program went wrong."""


# ----------------------------------------------------------------------------------------- in the child

def run_program(job, item, walls, harness):
    """Puts up the walls, then runs the program. Never returns."""
    try:
        walls.rules = RULES if walls.rules is not None else None
        walls.enclose(job, harness)
        sys.setrecursionlimit(10_000)
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)
        os.write(STATUS, STAND)
        os.close(STATUS)
    except BaseException as error:
        os.write(STATUS, f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:ERROR_BYTES])
        os._exit(1)
    code = NO_PROGRAM
    try:
        space = {"__name__": "__main__", "__builtins__": __builtins__}
        program = compile(job["program"], "program.py", "exec")
        code = 1
        if job["function"] is None:
            exec(program, space)
            sys.stdout.flush()
        else:
            answer = json.dumps(call_function(program, space, job["function"], item)).encode()
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


# --------------------------------------------------------------------------------------- in the harness

def fork_child(job, item, walls, null):
    """The child's number and the ends of its output, its errors and its status."""
    text = "" if job["function"] is not None else item
    given = os.memfd_create("input")
    data = memoryview(text.encode("utf-8", "surrogatepass"))
    while data:
        data = data[os.write(given, data) :]
    os.lseek(given, 0, os.SEEK_SET)
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    status, status_end = os.pipe()
    harness = os.getpid()
    child = os.fork()
    if child == 0:
        os.dup2(given, 0)
        # A called function answers on a pipe of its own; what it prints is thrown away.
        os.dup2(out_end if job["function"] is None else null, 1)
        os.dup2(err_end, 2)
        os.dup2(out_end, ANSWER)
        os.dup2(status_end, STATUS)
        if walls.rules is not None:
            os.dup2(walls.rules, RULES)
        os.closerange(RULES + 1, MOST_DESCRIPTORS)
        try:
            run_program(job, item, walls, harness)
        finally:
            os._exit(1)
    for end in (given, out_end, err_end, status_end):
        os.close(end)
    return child, out, err, status


def end_with_server(wait_s, ends=()):
    """Waits until something comes from the ends; during a job nothing comes from the server but its end."""
    ready = select.select([0, *ends], [], [], wait_s)[0]
    if 0 in ready:
        os._exit(1)
    return ready


def await_walls(status):
    """Raises Fault where the child's walls do not stand."""
    said = b""
    deadline = time.monotonic() + WALLS_S
    while True:
        if not end_with_server(max(deadline - time.monotonic(), 0), [status]):
            raise Fault(f"the walls of a program did not stand within {WALLS_S} s")
        piece = os.read(status, ERROR_BYTES)
        if not piece:
            break
        said += piece
    os.close(status)
    if said != STAND:
        raise Fault(f"the walls of a program do not stand: {said.decode('utf-8', 'replace') or 'it ended before'}")


def collect(job, ends, deadline):
    """Reads what the program writes until it closes both ends, takes too long or writes too much."""
    out, err = ends
    texts = {out: bytearray(), err: bytearray()}
    open_ends = {out, err}
    while open_ends:
        left = deadline - time.monotonic()
        ready = end_with_server(left, open_ends) if left > 0 else []
        if not ready:
            return "timeout", texts
        for end in ready:
            piece = os.read(end, PIECE_BYTES)
            if not piece:
                open_ends.discard(end)
            elif end == err:
                texts[end] += piece[: max(ERROR_BYTES - len(texts[end]), 0)]
            else:
                texts[end] += piece
                if len(texts[end]) > job["output_bytes"]:
                    return "output", texts
    return "ok", texts


def ended(child, deadline):
    """How the child ended and the processor seconds it took; None where it goes on. It may close its ends and do so."""
    while time.monotonic() < deadline:
        done, how, usage = os.wait4(child, os.WNOHANG)
        if done:
            return how, usage.ru_utime + usage.ru_stime
        end_with_server(0.001)
    return None


def judge_end(job, end, error):
    """What the end of a child says: status and error. Raises Fault where something else ended it."""
    how, cpu_s = end
    if os.WIFSIGNALED(how):
        number = os.WTERMSIG(how)
        if number == signal.SIGXCPU or (number == signal.SIGKILL and cpu_s >= job["cpu_s"]):
            return "timeout", error or f"ended by {signal.Signals(number).name}"
        if number == signal.SIGKILL:
            raise Fault("a program was killed from outside, perhaps because the machine has no memory left")
        return "error", error or f"ended by {signal.Signals(number).name}"
    return ("ok" if os.WEXITSTATUS(how) == 0 else "error"), error


def run_test(job, item, walls, null, deadline):
    """The result of one test, its output, and whether its text is no program."""
    child, out, err, status = fork_child(job, item, walls, null)
    end = None
    try:
        await_walls(status)
        deadline = min(deadline, time.monotonic() + job["wall_s"])
        outcome, texts = collect(job, (out, err), deadline)
        end = ended(child, deadline) if outcome == "ok" else None
    finally:
        if end is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.close(out)
        os.close(err)
    error = texts[err].decode("utf-8", "replace")
    if end is not None:
        outcome, error = judge_end(job, end, error)
    elif outcome == "ok":
        outcome = "timeout"
    is_no_program = end is not None and os.WIFEXITED(end[0]) and os.WEXITSTATUS(end[0]) == NO_PROGRAM
    return {"status": outcome, "error": error}, texts[out] if outcome == "ok" else b"", is_no_program


def run_job(job, walls, null):
    deadline = time.monotonic() + job["total_s"]
    is_no_program = False
    result = None
    output = b""
    for item in job["inputs"]:
        if time.monotonic() >= deadline:
            result, output = {"status": "timeout", "error": "no time left for this test"}, b""
        elif not is_no_program:
            result, output, is_no_program = run_test(job, item, walls, null, deadline)
        say({**result, "bytes": len(output)}, output)


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
    for line in sys.stdin:
        run_job(json.loads(line), walls, null)


try:
    main()
except Exception as error:
    say({"fault": f"{type(error).__name__}: {error}"})
    sys.exit(1)
