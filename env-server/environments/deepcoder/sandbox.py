"""Runs untrusted Python programs, each test in a process of its own that can reach nothing but its input and output.

Started by sandbox.ts, inside new namespaces where there are any. The first line written says which walls stand; then
every line read is a job and is answered by a line of results. Expected outputs never come here, so that a program that
breaks its harness gains nothing.

    job:    {"program", "function" (null: stdin to stdout), "inputs": [...], "cpu_s", "wall_s", "total_s", "memory_mb",
             "output_bytes"}
    answer: {"results": [{"status": "ok" | "error" | "timeout" | "output", "output", "error"}]}
"""

import ctypes
import json
import os
import platform
import resource
import select
import signal
import struct
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
NOBODY = 65534
ERROR_BYTES = 4096
# How a child ends whose text is no program: further tests of it can be spared.
NO_PROGRAM = 98


def call(name, *arguments):
    result = getattr(LIBC, name)(*arguments)
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


# ---------------------------------------------------------------------------------------------- files

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_NOATIME = 1, 2, 4, 8, 32, 1024
MS_BIND, MS_REC, MS_PRIVATE, MS_RELATIME = 4096, 16384, 1 << 18, 1 << 21
MNT_DETACH = 2
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


def mount(source, target, kind, flags, data=None):
    encode = lambda text: None if text is None else text.encode()
    call("mount", encode(source), encode(target), encode(kind), ctypes.c_ulong(flags), encode(data))


def library_folders():
    """What the interpreter reads: its standard library, and the folders of the shared libraries it may load."""
    standard = os.path.dirname(os.__file__)
    shared = ["/lib64", "/lib", "/usr/lib64", "/usr/lib", "/usr/local/lib"]
    prefix_lib = os.path.join(sys.base_prefix, "lib")
    folders = [standard]
    folders += [path for path in shared if os.path.isdir(path) and not os.path.islink(path)]
    if not any(prefix_lib == path or prefix_lib.startswith(path + "/") for path in folders):
        folders.append(prefix_lib)
    return [path for path in folders if not any(path != other and path.startswith(other + "/") for other in folders)]


def enter_bare_root():
    """Replaces the root by an empty one that holds the interpreter's libraries, read only."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    root = "/tmp"
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,mode=755")
    for path in library_folders():
        target = root + path
        os.makedirs(target, exist_ok=True)
        mount(path, target, None, MS_BIND)
        flags = os.statvfs(target).f_flag
        kept = sum(bit for mark, bit in ((2, MS_NOSUID), (4, MS_NODEV), (8, MS_NOEXEC), (1024, MS_NOATIME), (4096, MS_RELATIME)) if flags & mark)
        mount(None, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | kept)
    for link in ("/lib64", "/lib", "/usr/lib64"):
        if os.path.islink(link) and not os.path.lexists(root + link):
            os.makedirs(os.path.dirname(root + link), exist_ok=True)
            os.symlink(os.readlink(link), root + link)
    os.chdir(root)
    if LIBC.syscall(PIVOT_ROOT[platform.machine()], b".", b".") != 0:
        raise OSError(ctypes.get_errno(), "pivot_root")
    call("umount2", b".", MNT_DETACH)
    os.chdir("/")
    mount(None, "/", None, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


def drop_privileges(uid):
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    else:
        for capability in range(64):
            LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        header = struct.pack("=Ii", 0x20080522, 0)
        call("capset", header, bytes(24))
    if LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")


# Landlock keeps a process to some folders where there is no mount namespace.
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_READ_FILE, LANDLOCK_READ_DIR = 1 << 2, 1 << 3
LANDLOCK_ALL = (1 << 13) - 1


def landlock(folders):
    """Everything but reading the folders is forbidden from now on. Raises OSError where the kernel cannot."""
    attribute = struct.pack("=Q", LANDLOCK_ALL)
    ruleset = LIBC.syscall(LANDLOCK_CREATE, attribute, len(attribute), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock")
    for path in folders:
        folder = os.open(path, os.O_PATH | os.O_DIRECTORY)
        rule = struct.pack("=Qi", LANDLOCK_READ_FILE | LANDLOCK_READ_DIR, folder)
        if LIBC.syscall(LANDLOCK_ADD, ruleset, 1, rule, 0) != 0:
            raise OSError(ctypes.get_errno(), "landlock rule")
        os.close(folder)
    if LIBC.syscall(LANDLOCK_RESTRICT, ruleset, 0) != 0:
        raise OSError(ctypes.get_errno(), "landlock restrict")
    os.close(ruleset)


# ---------------------------------------------------------------------------------------- system calls

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Allowed system calls by name: their numbers on x86_64 and aarch64, None where there is none.
ALLOWED = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "stat": (4, None), "fstat": (5, 80), "lstat": (6, None),
    "poll": (7, None), "lseek": (8, 62), "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "pread64": (17, 67),
    "readv": (19, 65), "writev": (20, 66), "access": (21, None), "select": (23, None), "sched_yield": (24, 124),
    "mremap": (25, 216), "madvise": (28, 233), "dup": (32, 23), "dup2": (33, None), "nanosleep": (35, 101),
    "getitimer": (36, 102), "alarm": (37, None), "setitimer": (38, 103), "getpid": (39, 172), "exit": (60, 93),
    "uname": (63, 160), "fcntl": (72, 25), "getcwd": (79, 17), "readlink": (89, None), "gettimeofday": (96, 169),
    "getrlimit": (97, 163), "getrusage": (98, 165), "sysinfo": (99, 179), "times": (100, 153), "getuid": (102, 174),
    "getgid": (104, 176), "geteuid": (107, 175), "getegid": (108, 177), "getppid": (110, 173), "sigaltstack": (131, 132),
    "arch_prctl": (158, None), "gettid": (186, 178), "time": (201, None), "futex": (202, 98),
    "sched_getaffinity": (204, 123), "getdents64": (217, 61), "set_tid_address": (218, 96), "restart_syscall": (219, 128),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "exit_group": (231, 94),
    "newfstatat": (262, 79), "readlinkat": (267, 78), "faccessat": (269, 48), "pselect6": (270, 72), "ppoll": (271, 73),
    "set_robust_list": (273, 99), "dup3": (292, 24), "getcpu": (309, 168), "getrandom": (318, 278),
    "membarrier": (324, 283), "statx": (332, 291), "rseq": (334, 293), "faccessat2": (439, 439),
}
CLONE, CLONE3, OPENAT, IOCTL, TGKILL, PRLIMIT = (56, 220), (435, 435), (257, 56), (16, 29), (234, 131), (302, 261)
CLONE_THREAD = 0x10000
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
TERMINAL_QUERY = 0x5401
X32 = 0x40000000
EPERM, EACCES, ENOSYS = 1, 13, 38


def system_call_filter():
    """A program in the kernel's language: what computing, reading libraries, threads, and input and output need is
    allowed, the rest fails with EPERM. Returned in two parts, between which belongs the process's own number."""
    machine = platform.machine()
    column = list(ARCHITECTURES).index(machine)
    code = []
    LOAD, EQUAL, ABOVE, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
    ALLOW, FAIL = 0x7FFF0000, 0x00050000

    def put(operation, value, if_true=0, if_false=0):
        code.append(struct.pack("=HBBI", operation, if_true, if_false, value))

    put(LOAD, 4)
    put(EQUAL, ARCHITECTURES[machine], 1, 0)
    put(RETURN, 0x80000000)
    put(LOAD, 0)
    if machine == "x86_64":
        put(ABOVE, X32, 0, 1)
        put(RETURN, FAIL | EPERM)
    for numbers in ALLOWED.values():
        if numbers[column] is not None:
            put(EQUAL, numbers[column], 0, 1)
            put(RETURN, ALLOW)
    argument = lambda index: 16 + 8 * index
    # clone only for threads
    put(EQUAL, CLONE[column], 0, 4)
    put(LOAD, argument(0))
    put(ANY_BIT, CLONE_THREAD, 0, 1)
    put(RETURN, ALLOW)
    put(RETURN, FAIL | EPERM)
    put(EQUAL, CLONE3[column], 0, 1)
    put(RETURN, FAIL | ENOSYS)
    # openat only for reading
    put(EQUAL, OPENAT[column], 0, 4)
    put(LOAD, argument(2))
    put(ANY_BIT, WRITING, 0, 1)
    put(RETURN, FAIL | EACCES)
    put(RETURN, ALLOW)
    # ioctl only to ask whether this is a terminal
    put(EQUAL, IOCTL[column], 0, 4)
    put(LOAD, argument(1))
    put(EQUAL, TERMINAL_QUERY, 0, 1)
    put(RETURN, ALLOW)
    put(RETURN, FAIL | EPERM)
    # signals only to itself, limits only its own
    put(EQUAL, TGKILL[column], 0, 4)
    put(LOAD, argument(0))
    own = len(code)
    put(EQUAL, 0, 0, 1)
    put(RETURN, ALLOW)
    put(RETURN, FAIL | EPERM)
    put(EQUAL, PRLIMIT[column], 0, 4)
    put(LOAD, argument(0))
    put(EQUAL, 0, 0, 1)
    put(RETURN, ALLOW)
    put(RETURN, FAIL | EPERM)
    put(RETURN, FAIL | EPERM)
    return b"".join(code[:own]), b"".join(code[own + 1 :])


FILTER = system_call_filter() if platform.machine() in ARCHITECTURES else None


def filter_system_calls():
    """From now on this process can do no more than the filter allows."""
    before, after = FILTER
    text = before + struct.pack("=HBBI", 0x15, 0, 1, os.getpid()) + after
    buffer = ctypes.create_string_buffer(text, len(text))
    program = struct.pack("=HxxxxxxQ", len(text) // 8, ctypes.addressof(buffer))
    if LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or LIBC.prctl(PR_SET_SECCOMP, 2, program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


# ------------------------------------------------------------------------------------------ one program

def limit(job):
    memory = job["memory_mb"] << 20
    cpu = job["cpu_s"]
    for kind, soft, hard in (
        (resource.RLIMIT_AS, memory, memory),
        (resource.RLIMIT_CPU, cpu, cpu + 1),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_NOFILE, 32, 32),
        (resource.RLIMIT_STACK, 16 << 20, 16 << 20),
    ):
        resource.setrlimit(kind, (soft, hard))


def run_program(job, item, walls, result):
    """In the child: puts up the walls, then runs the program. Never returns."""
    try:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        limit(job)
        if "landlock" in walls:
            landlock(library_folders())
        if "seccomp" in walls:
            filter_system_calls()
    except BaseException as error:
        os.write(2, f"the walls could not be put up: {error}".encode())
        os._exit(97)
    code = 1
    try:
        sys.setrecursionlimit(10_000)
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)
        space = {"__name__": "__main__", "__builtins__": __builtins__}
        code = NO_PROGRAM
        program = compile(job["program"], "program.py", "exec")
        code = 1
        if job["function"] is None:
            exec(program, space)
            sys.stdout.flush()
        else:
            answer = json.dumps(call_function(program, space, job["function"], item)).encode()
            while answer:
                answer = answer[os.write(result, answer) :]
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


def fork_child(job, item, walls, null):
    text = "" if job["function"] is not None else item
    given = os.memfd_create("input")
    data = text.encode("utf-8", "surrogatepass")
    while data:
        data = data[os.write(given, data):]
    os.lseek(given, 0, os.SEEK_SET)
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(given, 0)
        # A called function answers on a pipe of its own; what it prints is thrown away.
        os.dup2(out_end, 3)
        os.dup2(out_end if job["function"] is None else null, 1)
        os.dup2(err_end, 2)
        os.closerange(4, 256)
        run_program(job, item, walls, 3)
    for end in (given, out_end, err_end):
        os.close(end)
    return child, out, err


def end_with_server(wait_s, ends=()):
    """Waits until something comes from the ends; during a job nothing comes from the server but its end."""
    ready = select.select([0, *ends], [], [], wait_s)[0]
    if 0 in ready:
        os._exit(1)
    return ready


def run_test(job, item, walls, null, deadline):
    child, out, err = fork_child(job, item, walls, null)
    deadline = min(deadline, time.monotonic() + job["wall_s"])
    texts = {out: bytearray(), err: bytearray()}
    open_ends = {out, err}
    status = "ok"
    while open_ends:
        left = deadline - time.monotonic()
        ready = end_with_server(left, open_ends) if left > 0 else []
        if not ready:
            status = "timeout"
            break
        for end in ready:
            chunk = os.read(end, 65536)
            if not chunk:
                open_ends.discard(end)
            elif end == err:
                texts[end] += chunk[: max(ERROR_BYTES - len(texts[end]), 0)]
            else:
                texts[end] += chunk
                if len(texts[end]) > job["output_bytes"]:
                    status = "output"
        if status == "output":
            break
    if status == "ok":
        # Both ends are closed; a program may do that and go on.
        while time.monotonic() < deadline:
            done, how = os.waitpid(child, os.WNOHANG)
            if done:
                break
            end_with_server(0.001)
        else:
            done = 0
            status = "timeout"
    else:
        done = 0
    if not done:
        os.kill(child, signal.SIGKILL)
        _, how = os.waitpid(child, 0)
    os.close(out)
    os.close(err)
    error = texts[err].decode("utf-8", "replace")
    if status == "ok" and os.WIFSIGNALED(how):
        number = os.WTERMSIG(how)
        status = "timeout" if number in (signal.SIGXCPU, signal.SIGKILL) else "error"
        error = error or f"ended by {signal.Signals(number).name}"
    elif status == "ok" and os.WEXITSTATUS(how) != 0:
        status = "error"
    result = {"status": status, "output": texts[out].decode("utf-8", "replace") if status == "ok" else "", "error": error}
    return result, status == "error" and os.WIFEXITED(how) and os.WEXITSTATUS(how) == NO_PROGRAM


def run_job(job, walls, null):
    deadline = time.monotonic() + job["total_s"]
    results = []
    is_no_program = False
    for item in job["inputs"]:
        if is_no_program:
            results.append(results[-1])
        elif time.monotonic() >= deadline:
            results.append({"status": "timeout", "output": "", "error": "no time left for this test"})
        else:
            result, is_no_program = run_test(job, item, walls, null, deadline)
            results.append(result)
    return {"results": results}


# --------------------------------------------------------------------------------------------- walls

def try_in_child(action):
    """Whether an action that cannot be undone works, tried in a process of its own."""
    child = os.fork()
    if child == 0:
        try:
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def build_walls(spaces):
    """spaces: "user" or "root" for new namespaces (made by a user or by root), "none" for none."""
    walls = ["rlimits"]
    if FILTER and try_in_child(filter_system_calls):
        walls.append("seccomp")
    if spaces != "none":
        enter_bare_root()
        drop_privileges(NOBODY if spaces == "root" else None)
        walls += ["user" if spaces == "user" else "nobody", "mount", "pid", "net", "ipc"]
    elif try_in_child(lambda: (LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), landlock(library_folders()))):
        walls.append("landlock")
    return walls


def main():
    null = os.open("/dev/null", os.O_WRONLY)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Imported here so that no program has to read them from disk.
    import bisect, collections, copy, decimal, fractions, functools, heapq, io, itertools, math, operator, random, re, statistics, string, typing  # noqa: E401, F401
    walls = build_walls(sys.argv[1])
    print(json.dumps({"walls": walls}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run_job(json.loads(line), walls, null)), flush=True)


main()
