"""Runs a program that reads nothing but some folders, writes no file, reaches no network, and has limits.

    confine.py MEMORY_MB CPU_S FOLDER[:FOLDER...] PROGRAM [ARGUMENT...]

Started by process.ts, inside new namespaces where there are any. The first line of the standard error says which walls
stand; a machine that lacks one ends this with the code NO_WALLS and the reason, and the program is not run.
"""

import os
import resource
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../deepcoder/sandbox"))
from walls import (  # noqa: E402
    EXECUTE, LANDLOCK_RESTRICT, LIBC, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, READ_DIR, READ_FILE, TCP_SINCE,
    failed, keep_capabilities, landlock_rules, landlock_version, library_folders,
)

NO_WALLS = 97
MAX_DESCRIPTORS = 256


def has_network():
    """Whether there is an interface that leads out; a new namespace has the loopback at most."""
    with open("/proc/net/dev") as interfaces:
        names = [line.split(":")[0].strip() for line in interfaces if ":" in line]
    return any(name != "lo" for name in names)


def confine(memory_mb, cpu_s, folders):
    """Puts up the walls around this process and all that it becomes. Returns their names."""
    version = landlock_version()
    if version == 0:
        raise OSError("Landlock is not there (Linux 5.13)")
    isolated = not has_network()
    if not isolated and version < TCP_SINCE:
        raise OSError("there is neither a network namespace nor Landlock's rule for TCP (Linux 6.7)")
    for kind, limit in [
        # Memory that is written to; the libraries of Lean are mapped from files.
        (resource.RLIMIT_DATA, memory_mb << 20),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, MAX_DESCRIPTORS),
    ]:
        resource.setrlimit(kind, (limit, limit))
    rules = landlock_rules(folders, version, READ_FILE | READ_DIR | EXECUTE)
    if os.geteuid() == 0:
        keep_capabilities()
    if LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise failed("parent death signal")
    if LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise failed("no_new_privs")
    if LIBC.syscall(LANDLOCK_RESTRICT, rules, 0) != 0:
        raise failed("landlock restrict")
    os.closerange(3, MAX_DESCRIPTORS)
    return ["rlimits", "landlock", "net" if isolated else "tcp"]


def main():
    memory_mb, cpu_s, folders, program, *arguments = sys.argv[1:]
    try:
        names = confine(int(memory_mb), int(cpu_s), [*library_folders(), "/dev/urandom", *folders.split(":")])
    except Exception as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(NO_WALLS)
    print("walls:", ", ".join(names), file=sys.stderr, flush=True)
    os.execv(program, [program, *arguments])


main()
