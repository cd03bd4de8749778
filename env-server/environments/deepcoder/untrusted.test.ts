import { once } from 'node:events';
import t, { type Test } from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { type ServerProcess, startServer } from '../../../test/process.test-data.ts';
import { residentBytes } from '../../../test/process-memory.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { hashToken } from '../../transports/access/auth.ts';
import { contained, noContainer, noProcessNamespace } from './sandbox/container.test-data.ts';
import { findIsolation } from './sandbox/isolation.ts';
import { SandboxFailed } from './sandbox/sandbox.ts';

/** Programs that attack the server itself: its process, its time, its memory. */

t.setTimeout(900_000);

const isolated = await findIsolation().then(
  () => true,
  (error: unknown) => {
    if (error instanceof SandboxFailed) return false;
    throw error;
  },
);
const skip = !isolated && 'no isolation on this machine';

const YES = { statement: 'Say yes.', tests: [{ input: '', output: 'yes\n' }] };
const TOKENS = ['greedy', 'modest'].map(name => ({ name, sha256: hashToken(name), scopes: ['play'] }));
const SLEEP = 'import time\nprint("yes", flush=True)\ntime.sleep(1000)';

/** A client with a token. */
function client({ ask }: ServerProcess, token?: string) {
  const headers: { [name: string]: string } = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const post = (path: string, body: Json) => ask('POST', path, body, headers);
  const create = (config: JsonObject = {}, options: JsonObject = YES) =>
    post('/v1/sessions', { env_id: 'DeepCoder-v0', config, options });
  return {
    create,
    open: async (config?: JsonObject, options?: JsonObject) =>
      String((await create(config, options)).body.session_id),
    step: (session: string, action: string) => post(`/v1/sessions/${session}/step`, { action }),
    get: (session: string) => ask('GET', `/v1/sessions/${session}`, undefined, headers),
  };
}

/** One server for all that needs no other: each start costs seconds. */
let running: ServerProcess | undefined;

t.test('a server starts that players share', { skip }, async () => {
  running = await startServer(t, ['--tokens', JSON.stringify(TOKENS)], {
    RAGEN_DEEPCODER_SLOTS: '2',
    RAGEN_DEEPCODER_GUEST_SLOTS: '1',
    RAGEN_DEEPCODER_QUEUE_LENGTH: '1',
    RAGEN_DEEPCODER_QUEUE_SECONDS: '5',
    RAGEN_DEEPCODER_MAX_OUTPUT_BYTES: '64000000',
  });
});

t.test('programs of one token that sleep delay nobody else', { skip }, async t => {
  const server = running!;
  const greedy = client(server, 'greedy');
  const modest = client(server, 'modest');
  const config = { cpu_s: 30, wall_s: 60, total_s: 60 };
  const sessions = await Promise.all([1, 2, 3, 4].map(() => greedy.open(config)));
  let ended = 0;
  const steps = sessions.slice(0, 3).map(session => greedy.step(session, SLEEP).finally(() => ended++));
  for (const step of steps) step.catch(() => undefined);

  const refused = async () => (await greedy.step(sessions[3], SLEEP)).body.code;
  let answer = await refused();
  await until(async () => {
    if (String(answer) !== 'too_many_requests') answer = await refused();
    return String(answer) === 'too_many_requests' || ended > 0;
  });
  const session = await modest.open();
  const { status, body } = await modest.step(session, 'print("yes")');
  t.match({ status, body }, { status: 200, body: { reward: 1, terminated: true } });

  const [first, at] = await Promise.race(steps.map(async (step, index) => [await step, index] as const));
  t.match(first, { status: 503, body: { code: 'environment_busy', retryable: true, retry_after_s: Number } });
  t.equal(first.headers.get('retry-after'), String(first.body.retry_after_s));
  const { body: waited } = await greedy.get(sessions[at]);
  t.match(waited, { step: 0, terminated: false }, 'nothing was done in the session that waited');
});

const MB = 1024 * 1024;
/** Each prints 60 MB. */
const TESTS = 8;

t.test('output of programs is bounded in the server’s memory', { skip }, async t => {
  const server = running!;
  const { open, step } = client(server, 'modest');
  await step(await open(), 'print("yes")');
  const before = residentBytes(server.child.pid!, 'VmRSS') / MB;
  const tests = Array(TESTS).fill({ input: '', output: 'x' });
  const session = await open({ output_bytes: 64_000_000, total_s: 60 }, { statement: 'Print.', tests });
  const { status, body } = await step(
    session,
    'import sys\nfor i in range(60): sys.stdout.write("x " * 500_000)',
  );
  t.match({ status, body }, { status: 200, body: { reward: 0, info: { failure: 'wrong output' } } });
  const grown = residentBytes(server.child.pid!, 'VmHWM') / MB - before;
  t.ok(
    grown < 60 * (TESTS - 4),
    `${60 * TESTS} MB of output made the server grow by ${Math.round(grown)} MB at most`,
  );

  const flood = await open({ output_bytes: 1_000_000 });
  const flooded = await step(flood, 'while True: print("x" * 100_000)');
  t.match(flooded.body, { reward: 0, info: { failure: 'printed too much' } });
});

/** Tries to signal process 1, its parent, its group and everybody by all means there are, and says so when one works. */
const ATTACK = `
import ctypes, fcntl, os, signal, struct
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
targets = [1, os.getppid(), -1, *(n for n in range(2, 60) if n != os.getpid())]

def tries(attempt):
    try:
        if attempt() not in (-1,):
            print("worked")
    except BaseException:
        pass

for target in targets:
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGSTOP):
        info = struct.pack("=iiiiii", number, 0, -1, 0, os.getpid(), 0) + bytes(104)
        tries(lambda: os.kill(target, number))
        tries(lambda: libc.syscall(200, target, number))
        tries(lambda: libc.syscall(234, target, target, number))
        tries(lambda: libc.syscall(129, target, number, info))
        tries(lambda: libc.syscall(297, target, target, number, info))
        descriptor = libc.syscall(434, target, 0)
        tries(lambda: libc.syscall(424, descriptor, number, 0, 0))
        timer = ctypes.create_string_buffer(8)
        tries(lambda: libc.syscall(222, 0, struct.pack("=QiiiI", 0, number, 4, target, 0) + bytes(40), timer))
        for end in range(4):
            tries(lambda: fcntl.fcntl(end, 10, number))
            tries(lambda: fcntl.fcntl(end, fcntl.F_SETOWN, target))
            tries(lambda: fcntl.fcntl(end, 15, struct.pack("=ii", 1, target)))
            tries(lambda: fcntl.fcntl(end, fcntl.F_SETFL, os.O_ASYNC))
            tries(lambda: fcntl.ioctl(end, 0x8901, struct.pack("=i", target)))
            tries(lambda: fcntl.ioctl(end, 0x5452, struct.pack("=i", 1)))
    tries(lambda: libc.ptrace(16, target, 0, 0))
    tries(lambda: libc.prlimit(target, 0, struct.pack("=QQ", 0, 0), 0))
    tries(lambda: libc.setpriority(0, target, 19) if target > 0 else -1)
tries(lambda: libc.prctl(1, signal.SIGKILL, 0, 0, 0))
print("yes", flush=True)
for end in (1, 2):
    os.write(end, b" " * 1000)
`;

async function attacked(t: Test, server: ServerProcess, token?: string): Promise<void> {
  const { open, step } = client(server, token);
  for (let round = 0; round < 2; round++) {
    const { status, body } = await step(await open({ wall_s: 30, cpu_s: 20 }), ATTACK);
    t.match({ status, body }, { status: 200, body: { reward: 1, info: { failure: '' } } }, 'nothing worked');
    t.equal((await server.ask('GET', '/livez')).status, 200, 'the server answers');
    t.match((await step(await open(), 'print("yes")')).body, { reward: 1 }, 'and runs programs');
  }
  t.same([server.child.exitCode, server.child.signalCode], [null, null]);
}

t.test('no program signals a server that is process 1 of a container', async t => {
  const why = noContainer() || noProcessNamespace();
  if (why) {
    t.pass('a server as process 1', { skip: why });
    return;
  }
  const server = await startServer(t, [], {}, command => [
    ...['unshare', '--pid', '--fork', '--kill-child'],
    ...contained(command),
  ]);
  const { body } = await server.ask('GET', '/v1/envs/DeepCoder-v0');
  t.match(body.condition.summary, /isolated by rlimits, seccomp, landlock/);
  await attacked(t, server);
  const ended = once(server.child, 'exit');
  server.child.kill('SIGKILL');
  await ended;
});

t.test('no program signals a server on this machine', { skip }, async t => {
  await attacked(t, running!, 'modest');
  await running!.end('SIGKILL');
});
