import { spawnSync } from 'node:child_process';
import { statSync } from 'node:fs';
import { dirname, parse } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The user that containers run the server as. */
const CONTAINER_UID = 1000;

/**
 * Runs a command as in a container with the default profile of Docker: as an ordinary user, with system calls that make
 * namespaces or mounts refused, and without no_new_privs. A tester who is not root gets no_new_privs, as the kernel wants.
 */
const CONTAINER = `
import ctypes, os, platform, struct, sys
uid, command = int(sys.argv[1]), sys.argv[2:]
libc = ctypes.CDLL(None, use_errno=True)
clone, unshare, mount, setns = {"x86_64": (56, 272, 165, 308), "aarch64": (220, 97, 40, 268)}[platform.machine()]
lines = [(0x20, 0, 0, 0)]
for number in (unshare, mount, setns):
    lines += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050001)]
lines += [(0x15, 0, 1, 435), (0x06, 0, 0, 0x00050026)]
lines += [(0x15, 0, 3, clone), (0x20, 0, 0, 16), (0x45, 0, 1, 0x7E020000), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = b"".join(struct.pack("=HBBI", *line) for line in lines)
buffer = ctypes.create_string_buffer(code, len(code))
if os.geteuid() != 0:
    libc.prctl(38, 1, 0, 0, 0)
if libc.prctl(22, 2, struct.pack("=HxxxxxxQ", len(lines), ctypes.addressof(buffer)), 0, 0) != 0:
    sys.exit("seccomp: " + os.strerror(ctypes.get_errno()))
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
# The change of user has undone what unshare --kill-child asked for.
libc.prctl(1, 9, 0, 0, 0)
os.environ["HOME"] = "/"
os.execvp(command[0], command)
`;

/** The command as it would run in a container. */
export function contained(command: readonly string[]): string[] {
  return ['python3', '-c', CONTAINER, String(CONTAINER_UID), ...command];
}

/** Why nothing can be run as in a container here; false where it can. */
export function noContainer(): string | false {
  const { status, stderr } = spawnSync('python3', contained(['true']).slice(1), { encoding: 'utf8' });
  if (status !== 0) return `no container can be imitated: ${stderr.trim()}`;
  if (process.getuid?.() !== 0) return false;
  for (const file of [process.execPath, fileURLToPath(import.meta.url)]) {
    for (let folder = dirname(file); folder !== parse(folder).root; folder = dirname(folder)) {
      if ((statSync(folder).mode & 0o001) === 0) return `${folder} is closed to the user of a container`;
    }
  }
  return false;
}

/** Why there is no process namespace for a server that is process 1; false where there is one. */
export function noProcessNamespace(): string | false {
  const { status } = spawnSync('unshare', ['--pid', '--fork', 'true']);
  return status === 0 ? false : 'process namespaces need root';
}
