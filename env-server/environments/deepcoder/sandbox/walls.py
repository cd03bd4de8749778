"""What keeps a program in: namespaces with a bare root, a separate user, Landlock, the system call filter, limits."""

import ctypes
import os
import platform
import resource
import signal
import struct
import sys

from system_calls import filter_of_this_machine

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
CAPABILITY_VERSION = 0x20080522
CAP_KILL, CAP_SETGID, CAP_SETUID = 5, 6, 7
# Threads of a program, its first one included.
MAX_THREADS = 64
# Counts processes of a user by user namespace from here on.
OWN_PROCESS_COUNT = (5, 14)


def failed(what):
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


def call(name, *arguments):
    if getattr(LIBC, name)(*arguments) != 0:
        raise failed(name)


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
        raise failed("pivot_root")
    call("umount2", b".", MNT_DETACH)
    os.chdir("/")
    mount(None, "/", None, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


# ------------------------------------------------------------------------------------------- landlock

LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_VERSION = 1
EXECUTE, READ_FILE, READ_DIR = 1, 1 << 2, 1 << 3
# The rights over files that each version of the interface can take away: 13, then REFER, TRUNCATE and IOCTL_DEV.
FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
TCP_SINCE, TCP = 4, 0b11
SCOPES_SINCE, SCOPES = 6, 0b11  # abstract sockets and signals of processes outside


def landlock_version():
    """0 where the kernel has none."""
    return max(LIBC.syscall(LANDLOCK_CREATE, None, 0, LANDLOCK_VERSION), 0)


def landlock_rules(paths, version, allowed=READ_FILE | READ_DIR):
    """A descriptor of rules that leave nothing but reading files and folders, or what else is allowed there."""
    rights = struct.pack("=Q", FILE_RIGHTS[min(version, max(FILE_RIGHTS))])
    if version >= TCP_SINCE:
        rights += struct.pack("=Q", TCP)
    if version >= SCOPES_SINCE:
        rights += struct.pack("=Q", SCOPES)
    rules = LIBC.syscall(LANDLOCK_CREATE, rights, len(rights), 0)
    if rules < 0:
        raise failed("landlock")
    for path in paths:
        place = os.open(path, os.O_PATH)
        access = allowed if os.path.isdir(path) else allowed & ~READ_DIR
        if LIBC.syscall(LANDLOCK_ADD, rules, 1, struct.pack("=Qi", access, place), 0) != 0:
            raise failed("landlock rule")
        os.close(place)
    return rules


# ---------------------------------------------------------------------------------------- privileges

def keep_capabilities(*kept):
    """Drops every capability but these, for good."""
    for capability in range(64):
        LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    mask = sum(1 << capability for capability in kept)
    call("capset", struct.pack("=Ii", CAPABILITY_VERSION, 0), struct.pack("=IIIIII", mask, mask, 0, 0, 0, 0))


def become(uid):
    """Another user, in no other group than its own, with no capability."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def kernel_release():
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])


def works_in_child(action):
    """True if an action that cannot be undone works, tried in a separate process."""
    child = os.fork()
    if child == 0:
        try:
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


class Walls:
    """Walls of the harness's children; `enclose` puts a child behind all of them.

    spaces: "root" or "user" where the harness was started in new namespaces, by root or by a user; "none" for none.
    uid: the user of the program, where root starts the harness; it must differ from those of all other processes.
    """

    def __init__(self, spaces, uid):
        self.rules = None
        is_root = os.geteuid() == 0
        self.uid = uid if is_root and spaces != "user" and works_in_child(lambda: become(uid)) else None
        self.names = ["rlimits"]
        self.filter = filter_of_this_machine()
        if self.filter is not None and works_in_child(self.filter_calls):
            self.names.append("seccomp")
        else:
            self.filter = None
        self.prefer_for_memory()
        if spaces != "none":
            enter_bare_root()
            self.names += ["mount", "pid", "net", "ipc"]
        version = landlock_version()
        if version > 0:
            self.rules = landlock_rules(library_folders(), version)
            if works_in_child(self.restrict):
                self.names.append("landlock")
                if version >= SCOPES_SINCE:
                    self.names.append("signals")
            else:
                os.close(self.rules)
                self.rules = None
        if self.uid is not None:
            self.names.append("uid")
            keep_capabilities(CAP_KILL, CAP_SETGID, CAP_SETUID)
        elif is_root:
            keep_capabilities()
        if spaces == "user":
            self.names.append("user")
        # Nobody but root may look into the harness or trace it.
        call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
        self.counts_threads = self.uid is not None or (spaces == "user" and kernel_release() >= OWN_PROCESS_COUNT)

    @staticmethod
    def prefer_for_memory():
        """Where memory runs out, the kernel ends programs before it ends the server. That is a wish, not a wall."""
        try:
            with open("/proc/self/oom_score_adj", "w") as score:
                score.write("1000")
        except OSError:
            pass

    def enclose(self, limits, harness):
        """In the child: from here on only the program's own code may run. Raises OSError where a wall does not stand."""
        if self.uid is not None:
            become(self.uid)
        # After the change of user, which would undo it.
        if LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise failed("parent death signal")
        if os.getppid() != harness:
            os._exit(1)
        self.limit(limits)
        self.forbid_new_privileges()
        if self.rules is not None:
            self.restrict()
            os.close(self.rules)
        if self.filter is not None:
            self.filter.apply(LIBC)

    def limit(self, limits):
        memory = limits["memory_mb"] << 20
        cpu = limits["cpu_s"]
        ceilings = [
            (resource.RLIMIT_AS, memory, memory),
            (resource.RLIMIT_CPU, cpu, cpu + 1),
            (resource.RLIMIT_FSIZE, 0, 0),
            (resource.RLIMIT_CORE, 0, 0),
            (resource.RLIMIT_NOFILE, 32, 32),
            (resource.RLIMIT_STACK, 16 << 20, 16 << 20),
            (resource.RLIMIT_MEMLOCK, 0, 0),
            (resource.RLIMIT_MSGQUEUE, 0, 0),
        ]
        if self.counts_threads:
            ceilings.append((resource.RLIMIT_NPROC, MAX_THREADS, MAX_THREADS))
        for kind, soft, hard in ceilings:
            resource.setrlimit(kind, (soft, hard))

    @staticmethod
    def forbid_new_privileges():
        """Landlock and seccomp are refused to a process that could still gain privileges."""
        if LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise failed("no_new_privs")

    def restrict(self):
        self.forbid_new_privileges()
        if LIBC.syscall(LANDLOCK_RESTRICT, self.rules, 0) != 0:
            raise failed("landlock restrict")

    def filter_calls(self):
        self.forbid_new_privileges()
        self.filter.apply(LIBC)
