"""The system calls that a program may make: an allow list for x86_64 and aarch64, compiled to a seccomp filter.

A program computes, reads its input and the interpreter's libraries, writes its output, starts threads and looks at the
clock. Every other call fails with EPERM, even one that the kernel would refuse with another error. Calls of another architecture (32 bit, x32)
end the process.
"""

import ctypes
import errno
import os
import platform
import struct

# Audit number of the architecture, and its column in the tables below.
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

# Allowed with any arguments, because they concern nothing but the process itself. Numbers on x86_64 and aarch64, None
# where there is none.
FREE = {
    # input and output on open descriptors
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62), "pread64": (17, 67),
    "readv": (19, 65), "writev": (20, 66), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "getdents64": (217, 61),
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
    # looking for libraries; opening is guarded below
    "stat": (4, None), "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291), "access": (21, None),
    "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, None), "readlinkat": (267, 78), "getcwd": (79, 17),
    # memory
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216),
    "madvise": (28, 233),
    # threads
    "futex": (202, 98), "set_tid_address": (218, 96), "set_robust_list": (273, 99), "rseq": (334, 293),
    "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "getcpu": (309, 168), "exit": (60, 93), "exit_group": (231, 94),
    # signals that it sends to itself
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "getitimer": (36, 102), "setitimer": (38, 103), "alarm": (37, None), "restart_syscall": (219, 128),
    # time
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "time": (201, None), "times": (100, 153),
    # what it may know of itself and the machine
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getuid": (102, 174), "getgid": (104, 176),
    "geteuid": (107, 175), "getegid": (108, 177), "getrlimit": (97, 163), "getrusage": (98, 165), "sysinfo": (99, 179),
    "uname": (63, 160), "getrandom": (318, 278),
}

ALL = 0xFFFFFFFF
# Placeholder for the id of the process that the filter is for.
OWN = object()

F_SETFL = 4
HARMLESS_FCNTL = (0, 1, 2, 3, 1030)  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC
HARMLESS_STATUS = os.O_ACCMODE | os.O_NONBLOCK | os.O_APPEND | os.O_CLOEXEC | 0o100000  # the last is O_LARGEFILE
# TCGETS, TCGETS2, TIOCGWINSZ, FIONREAD, FIONCLEX, FIOCLEX
HARMLESS_IOCTL = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5450, 0x5451)
PR_NAMES = (15, 16)  # PR_SET_NAME, PR_GET_NAME
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# What glibc and musl start threads with: CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS, PARENT_SETTID, CHILD_CLEARTID.
THREAD = 0x3D0F00
CLONE_DETACHED = 0x400000  # musl sets it; the kernel ignores it
# Not SIGKILL and SIGSTOP: that a program was killed always comes from outside. And no real-time signals.
OWN_SIGNALS = tuple(number for number in range(1, 16) if number != 9)
# Limits that a program may lower: RLIMIT_FSIZE, DATA, STACK, CORE, NOFILE, AS. Not RLIMIT_CPU, which ends in SIGKILL.
OWN_LIMITS = (1, 2, 3, 4, 7, 9)

# Allowed where all tests of one of the alternatives hold. A test is an argument, a mask and the values that the masked
# argument may have. The kernel itself reads only the lower 32 bits of all these arguments but pointers, and so does the
# filter; `high` is the upper half of a pointer.
def low(index, *values, mask=ALL):
    return (16 + 8 * index, mask, values)


def high(index, *values):
    return (20 + 8 * index, ALL, values)


GUARDED = {
    # Not F_SETOWN, F_SETOWN_EX, F_SETSIG, O_ASYNC, F_NOTIFY, F_SETLEASE: each sends signals to other processes.
    "fcntl": ((72, 25), [[low(1, *HARMLESS_FCNTL)], [low(1, F_SETFL), low(2, 0, mask=ALL & ~HARMLESS_STATUS)]]),
    # Not FIOASYNC, FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCSPGRP.
    "ioctl": ((16, 29), [[low(1, *HARMLESS_IOCTL)]]),
    "prctl": ((157, 167), [[low(0, *PR_NAMES)]]),
    "openat": ((257, 56), [[low(2, 0, mask=WRITING)]]),
    "clone": ((56, 220), [[low(0, THREAD, mask=ALL & ~CLONE_DETACHED)]]),
    "tgkill": ((234, 131), [[low(0, OWN), low(2, *OWN_SIGNALS)]]),
    "prlimit64": (
        (302, 261),
        [[low(0, 0, OWN), low(2, 0), high(2, 0)], [low(0, 0, OWN), low(1, *OWN_LIMITS)]],
    ),
}
# The C library falls back to clone; a filter can see its flags.
ABSENT = {"clone3": (435, 435)}

X32 = 0x40000000
LOAD, AND, EQUAL, AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
ALLOW, KILL_PROCESS = 0x7FFF0000, 0x80000000
FAIL = 0x00050000
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2


def alternative(tests):
    """Instructions (operation, if true, if false, value) that allow the call, or pass on to those that follow."""
    lines = []
    for offset, mask, values in tests:
        lines.append([LOAD, 0, 0, offset])
        if mask != ALL:
            lines.append([AND, 0, 0, mask])
        lines += [[EQUAL, len(values) - 1 - place, 0, value] for place, value in enumerate(values)]
        lines[-1][2] = None
    lines.append([RETURN, 0, 0, ALLOW])
    for place, line in enumerate(lines):
        if line[2] is None:
            line[2] = len(lines) - place - 1
    return lines


def instructions(machine):
    audit, column = ARCHITECTURES[machine]
    lines = [[LOAD, 0, 0, 4], [EQUAL, 1, 0, audit], [RETURN, 0, 0, KILL_PROCESS], [LOAD, 0, 0, 0]]
    if machine == "x86_64":
        lines += [[AT_LEAST, 0, 1, X32], [RETURN, 0, 0, KILL_PROCESS]]
    for numbers in FREE.values():
        if numbers[column] is not None:
            lines += [[EQUAL, 0, 1, numbers[column]], [RETURN, 0, 0, ALLOW]]
    for numbers, alternatives in GUARDED.values():
        block = [line for tests in alternatives for line in alternative(tests)]
        lines += [[EQUAL, 0, len(block) + 1, numbers[column]], *block, [RETURN, 0, 0, FAIL | errno.EPERM]]
    for numbers in ABSENT.values():
        lines += [[EQUAL, 0, 1, numbers[column]], [RETURN, 0, 0, FAIL | errno.ENOSYS]]
    return [*lines, [RETURN, 0, 0, FAIL | errno.EPERM]]


class Filter:
    """Compiled once; every process puts its own number in."""

    def __init__(self, machine):
        lines = instructions(machine)
        self.places = [8 * place + 4 for place, line in enumerate(lines) if line[3] is OWN]
        self.code = b"".join(
            struct.pack("=HBBI", operation, if_true, if_false, 0 if value is OWN else value)
            for operation, if_true, if_false, value in lines
        )

    def code_for(self, process):
        code = bytearray(self.code)
        for place in self.places:
            struct.pack_into("=I", code, place, process)
        return bytes(code)

    def apply(self, libc):
        """From now on this process can do no more than the filter allows. Needs no_new_privs."""
        code = self.code_for(os.getpid())
        buffer = ctypes.create_string_buffer(code, len(code))
        program = struct.pack("=HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
        if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "seccomp: " + os.strerror(ctypes.get_errno()))


def filter_of_this_machine():
    """None where the table does not know the architecture, or a 32-bit interpreter runs on it."""
    machine = platform.machine()
    return Filter(machine) if machine in ARCHITECTURES and struct.calcsize("P") == 8 else None
