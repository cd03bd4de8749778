/** System calls that could reach beyond a program, and what must come of each. */

/** Numbers on x86_64 and aarch64; null where there is none. */
type Numbers = readonly [x86_64: number | null, aarch64: number | null];

/** A call, and its arguments in Python: `victim` and `ME` are process numbers, `room` is writable memory. */
export type Hole = readonly [name: string, numbers: Numbers, args: string];

const FCNTL: Numbers = [72, 25];
const IOCTL: Numbers = [16, 29];
const PRCTL: Numbers = [157, 167];
const PRLIMIT: Numbers = [302, 261];
const CLONE: Numbers = [56, 220];
const OPENAT: Numbers = [257, 56];
const TGKILL: Numbers = [234, 131];

/** One line for each hole. All fail with EPERM, clone3 with ENOSYS. */
export const HOLES: readonly Hole[] = [
  ['fcntl F_SETOWN', FCNTL, '1, 8, victim'],
  ['fcntl F_SETOWN to a group', FCNTL, '1, 8, -victim'],
  ['fcntl F_SETOWN_EX', FCNTL, '1, 15, room'],
  ['fcntl F_SETSIG', FCNTL, '1, 10, 9'],
  ['fcntl F_SETFL with O_ASYNC', FCNTL, '1, 4, 0o20000'],
  ['fcntl F_SETFL with O_ASYNC among others', FCNTL, '1, 4, 0o20000 | 0o4000 | 1'],
  ['fcntl F_SETFL with O_DIRECT', FCNTL, '1, 4, 0o40000'],
  ['fcntl F_NOTIFY', FCNTL, '0, 1026, 1'],
  ['fcntl F_SETLEASE', FCNTL, '0, 1024, 1'],
  ['fcntl F_SETLK', FCNTL, '0, 6, room'],
  ['fcntl F_SETPIPE_SZ', FCNTL, '1, 1031, 1 << 20'],
  ['fcntl F_ADD_SEALS', FCNTL, '0, 1033, 1'],
  ['fcntl F_SETOWN under a command of 64 bits', FCNTL, '1, (1 << 32) | 8, victim'],
  ['ioctl FIOASYNC', IOCTL, '1, 0x5452, room'],
  ['ioctl FIOSETOWN', IOCTL, '1, 0x8901, room'],
  ['ioctl SIOCSPGRP', IOCTL, '1, 0x8902, room'],
  ['ioctl TIOCSTI', IOCTL, '0, 0x5412, room'],
  ['ioctl TIOCSPGRP', IOCTL, '0, 0x5410, room'],
  ['ioctl TIOCSCTTY', IOCTL, '0, 0x540E, 1'],
  ['ioctl FS_IOC_SETFLAGS', IOCTL, '0, 0x40086602, room'],
  ['prctl PR_SET_PDEATHSIG', PRCTL, '1, 0, 0, 0, 0'],
  ['prctl PR_SET_DUMPABLE', PRCTL, '4, 1, 0, 0, 0'],
  ['prctl PR_SET_PTRACER', PRCTL, '0x59616d61, -1, 0, 0, 0'],
  ['prctl PR_SET_MM', PRCTL, '35, 1, 0, 0, 0'],
  ['prctl PR_SET_SECCOMP', PRCTL, '22, 2, room, 0, 0'],
  ['prctl PR_SCHED_CORE', PRCTL, '62, 3, victim, 0, 0'],
  ['kill another process', [62, 129], 'victim, 15'],
  ['kill the harness', [62, 129], 'os.getppid(), 2'],
  ['kill everybody', [62, 129], '-1, 15'],
  ['kill its group', [62, 129], '0, 2'],
  ['tkill', [200, 130], 'victim, 15'],
  ['tgkill another process', TGKILL, 'victim, victim, 15'],
  ['tgkill the harness', TGKILL, 'os.getppid(), os.getppid(), 2'],
  ['tgkill itself with SIGKILL', TGKILL, 'ME, ME, 9'],
  ['tgkill itself with SIGSTOP', TGKILL, 'ME, ME, 19'],
  ['rt_sigqueueinfo', [129, 138], 'victim, 15, room'],
  ['rt_tgsigqueueinfo', [297, 240], 'victim, victim, 15, room'],
  ['pidfd_open', [434, 434], 'victim, 0'],
  ['pidfd_send_signal', [424, 424], '0, 15, 0, 0'],
  ['pidfd_getfd', [438, 438], '0, 0, 0'],
  ['process_vm_readv', [310, 270], 'os.getppid(), room, 1, room, 1, 0'],
  ['process_vm_writev', [311, 271], 'os.getppid(), room, 1, room, 1, 0'],
  ['process_madvise', [440, 440], '0, room, 1, 20, 0'],
  ['process_mrelease', [448, 448], '0, 0'],
  ['ptrace PTRACE_ATTACH', [101, 117], '16, os.getppid(), 0, 0'],
  ['ptrace PTRACE_SEIZE', [101, 117], '0x4206, victim, 0, 0'],
  ['kcmp', [312, 272], 'ME, os.getppid(), 0, 0, 0'],
  ['timer_create with the thread of another process', [222, 107], '0, sigevent(4, 15, victim), room'],
  ['timer_create', [222, 107], '0, 0, room'],
  ['timerfd_create', [283, 85], '0, 0'],
  ['signalfd4', [289, 74], '-1, room, 8, 0'],
  ['mq_open', [240, 180], "b'/x', 0o102, 0o600, 0"],
  ['mq_notify', [244, 184], '0, room'],
  ['io_uring_setup', [425, 425], '1, room'],
  ['io_uring_enter', [426, 426], '0, 1, 0, 0, 0, 0'],
  ['io_uring_register', [427, 427], '-1, 0, 0, 0'],
  ['io_setup', [206, 0], '1, room'],
  ['keyctl', [250, 219], '0, -3, 1'],
  ['add_key', [248, 217], "b'user', b'x', b'x', 1, -3"],
  ['request_key', [249, 218], "b'user', b'x', 0, -3"],
  ['userfaultfd', [323, 282], '1'],
  ['bpf', [321, 280], '0, room, 64'],
  ['perf_event_open', [298, 241], 'room, victim, -1, -1, 0'],
  ['memfd_secret', [447, 447], '0'],
  ['memfd_create', [319, 279], "b'x', 0"],
  ['fork', [57, null], ''],
  ['vfork', [58, null], ''],
  ['clone a process', CLONE, '17, 0, 0, 0, 0'],
  ['clone with a user namespace', CLONE, '0x10000000 | 17, 0, 0, 0, 0'],
  ['clone a thread with a network namespace', CLONE, '0x3D0F00 | 0x40000000, 0, 0, 0, 0'],
  ['clone a thread that shares less', CLONE, '0x10000 | 0x800 | 0x100, 0, 0, 0, 0'],
  ['clone3', [435, 435], 'room, 88'],
  ['execve', [59, 221], "b'/bin/true', 0, 0"],
  ['execveat', [322, 281], "-100, b'/bin/true', 0, 0, 0"],
  ['unshare', [272, 97], '0x10000000'],
  ['setns', [308, 268], '0, 0'],
  ['sched_setscheduler', [144, 119], 'victim, 0, room'],
  ['sched_setparam', [142, 118], 'victim, room'],
  ['sched_setattr', [314, 274], 'victim, room, 0'],
  ['sched_setaffinity', [203, 122], 'victim, 8, room'],
  ['setpriority', [141, 140], '0, victim, 19'],
  ['setpriority of all processes of the user', [141, 140], '2, 0, 19'],
  ['ioprio_set', [251, 30], '1, victim, 0'],
  ['migrate_pages', [256, 238], 'victim, 0, 0, 0'],
  ['move_pages', [279, 239], 'victim, 0, 0, 0, 0, 0'],
  ['prlimit64 of another process', PRLIMIT, 'victim, 9, 0, room'],
  ['prlimit64 that sets those of the harness', PRLIMIT, 'os.getppid(), 9, room, 0'],
  ['prlimit64 that ends itself', PRLIMIT, '0, 0, room, 0'],
  ['socket', [41, 198], '1, 1, 0'],
  ['socket netlink', [41, 198], '16, 3, 0'],
  ['socketpair', [53, 199], '1, 1, 0, room'],
  ['connect', [42, 203], '0, room, 16'],
  ['sendmsg', [46, 211], '0, room, 0'],
  ['shmget', [29, 194], '0, 4096, 0o1600'],
  ['shmat', [30, 196], '0, 0, 0'],
  ['semget', [64, 190], '0, 1, 0o1600'],
  ['msgget', [68, 186], '0, 0o1600'],
  ['setsid', [112, 157], ''],
  ['setpgid', [109, 154], '0, 0'],
  ['setuid', [105, 146], '0'],
  ['setresuid', [117, 147], '0, 0, 0'],
  ['setgroups', [116, 159], '0, 0'],
  ['capset', [126, 91], 'room, room'],
  ['personality', [135, 92], '0x0040000'],
  ['mount', [165, 40], "b'x', b'/', b'tmpfs', 0, 0"],
  ['open_tree', [428, 428], "-100, b'/', 1"],
  ['chroot', [161, 51], "b'/'"],
  ['openat to write', OPENAT, "-100, b'/tmp/x', 0o101, 0o600"],
  ['openat of a nameless file', OPENAT, "-100, b'/tmp', 0o20200002, 0o600"],
  ['openat2', [437, 437], "-100, b'/', room, 24"],
  ['open', [2, null], "b'/', 0"],
  ['open_by_handle_at', [304, 265], '-100, room, 0'],
  ['unlinkat', [263, 35], "-100, b'/x', 0"],
  ['ftruncate', [77, 46], '0, 1 << 30'],
  ['seccomp', [317, 277], '0, 0, 0'],
  ['landlock_create_ruleset', [444, 444], '0, 0, 1'],
  ['arch_prctl', [158, null], '0x1002, 0'],
  ['modify_ldt', [154, null], '0, room, 16'],
  ['wait4', [61, 260], '-1, room, 1, 0'],
  ['inotify_init1', [294, 26], '0'],
  ['fanotify_init', [300, 262], '0, 0'],
  ['pipe2', [293, 59], 'room, 0'],
  ['splice', [275, 76], '0, 0, 1, 0, 1, 0'],
  ['syslog', [103, 116], '3, room, 10'],
  ['finit_module', [313, 273], "0, b'', 0"],
];

/** A program that tries one hole after the other, given a process to reach, and prints the outcome of each as JSON. */
export function prober(holes: readonly Hole[]): string {
  const lines = holes.map(([name, numbers, args]) => {
    const both = numbers.map(number => number ?? 'None').join(', ');
    return `    (${JSON.stringify(name)}, (${both}), lambda: (${args === '' ? '' : `${args},`})),`;
  });
  return `
import ctypes, errno, json, os, platform, struct
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
room = ctypes.create_string_buffer(4096)
ME = os.getpid()
victim = int(input())
column = 0 if platform.machine() == "x86_64" else 1

def sigevent(notify, number, thread):
    return ctypes.create_string_buffer(struct.pack("=QiiiI", 0, number, notify, thread, 0) + bytes(40))

def held(number, arguments):
    given = [a if isinstance(a, (bytes, ctypes.Array)) else ctypes.c_long(a) for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *given)
    return errno.errorcode[ctypes.get_errno()] if result == -1 else f"HOLE {result}"

found = {}
for name, numbers, arguments in [
${lines.join('\n')}
]:
    if numbers[column] is not None:
        found[name] = held(numbers[column], arguments())
        if os.getpid() != ME:
            os._exit(0)
print(json.dumps(found))
`;
}

/**
 * Prints the calls, of all numbers there could be, that a filter lets through or that fail otherwise than it says. On x86_64,
 * 335 and 336 are uretprobe and uprobe: the kernel asks no filter and ends a process that makes them itself.
 */
export const SWEEPER = `
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
known = set(map(int, input().split()))
if platform.machine() == "x86_64":
    known |= {335, 336}
odd = []
for number in range(1024):
    if number not in known:
        ctypes.set_errno(0)
        result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(-1)] * 6)
        if result != -1 or ctypes.get_errno() != errno.EPERM:
            odd.append((number, result, ctypes.get_errno()))
print(odd)
`;

/** Calls of other architectures, as machine code: what the table does not know ends the process. */
export const FOREIGN: { readonly [name: string]: string } = {
  'a 32-bit system call': 'b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3"',
  'an x32 system call': 'b"\\xb8\\x27\\x00\\x00\\x40\\x0f\\x05\\xc3"',
};

/** Runs machine code. */
export function machineCode(bytes: string): string {
  return `
import ctypes, mmap
room = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
room.write(${bytes})
function = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(room)))
print("alive", function())
`;
}
