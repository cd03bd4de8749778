import t from 'tap';
import { findIsolation } from './isolation.ts';
import { SandboxPool } from './pool.ts';
import { asText, type Job, SandboxFailed } from './sandbox.ts';

/** Programs that look in what they inherit for programs, inputs and outputs of others, and for the tests after their own. */

const isolation = await findIsolation().catch((error: unknown) => {
  if (error instanceof SandboxFailed) return undefined;
  throw error;
});
const LIMITS = { cpu_s: 30, wall_s: 60, total_s: 240, memory_mb: 512, output_bytes: 100_000 };

/** Texts begin with it. It is made of parts, so that a program that looks for it does not hold it. */
const MARK = `hidden-${'x'.repeat(3)}-`;
const LOOK = `
import ctypes, gc, os, sys
MARK = '-'.join(['hidden', 'x' * 3, ''])
found = set()

def note(text, where):
    at = text.find(MARK)
    while at >= 0:
        name = text[at + len(MARK):][:5]
        found.add(f'{name} in {where}') if name.isalpha() else None
        at = text.find(MARK, at + 1)
`;

t.setTimeout(300_000);

/** Programs that search memory; each prints its finds, one line per place. */
const ATTACKS: { readonly [name: string]: string } = {
  'walks the frames': `
frame = sys._getframe()
while frame:
    for name, value in {**frame.f_locals, **frame.f_globals}.items():
        if name not in ('found', 'note', 'MARK', 'mine'):
            note(repr(value), 'frames')
    frame = frame.f_back
`,
  'asks the garbage collector': `
for thing in [*gc.get_objects(), *gc.get_referrers(note)]:
    if thing is not found:
        try:
            note(repr(thing), 'objects')
        except Exception:
            pass
`,
  'reads its memory page by page': `
libc = ctypes.CDLL(None, use_errno=True)
libc.sbrk.restype = ctypes.c_void_p
libc.sbrk.argtypes = [ctypes.c_ssize_t]
PAGE = 4096
def is_there(address):
    # A call with an address that is not there fails, where reading it would end the program.
    return libc.write(2, ctypes.c_void_p(address), 1) == 1
def scan(begin, end):
    block = bytearray()
    for page in range(begin, end, PAGE):
        if is_there(page):
            block += ctypes.string_at(page, PAGE)
        elif block:
            look(block)
            block = bytearray()
    look(block)
def look(block):
    for form in ('latin-1', 'utf-16-le', 'utf-32-le'):
        mark = MARK.encode(form)
        at = block.find(mark)
        while at >= 0:
            name = block[at + len(mark):][:5 * len('x'.encode(form))].decode(form, 'replace')
            found.add(f'{name} in memory') if name.isalpha() else None
            at = block.find(mark, at + 1)
top = libc.sbrk(0) // PAGE * PAGE
scan(top - (16 << 20), top)
near = id(object()) // PAGE * PAGE
scan(near - (8 << 20), near + (8 << 20))
`,
  'reads its memory as a file': `
for name in ('self', 'thread-self', str(os.getppid()), '1'):
    try:
        with open(f'/proc/{name}/mem', 'rb', 0) as memory:
            memory.seek(id(found))
            found.add('a memory file')
    except OSError:
        pass
`,
  'reads what is left in its descriptors': `
rest = os.read(0, 1 << 20)
if rest:
    note(rest.decode('utf-8', 'replace'), 'standard input')
for number in range(4, 1024):
    try:
        os.fstat(number)
        found.add(f'descriptor {number}')
    except OSError:
        pass
for number in (0, 1, 2, 3):
    try:
        os.lseek(number, 0, os.SEEK_SET)
        note(os.read(number, 1 << 20).decode('utf-8', 'replace'), 'descriptors')
    except OSError:
        pass
`,
};

/** Looks around, having read the first line of its input. */
const attack = (look: string) => `${LOOK}
mine = input()
${look}
print('\\n'.join(sorted(found)) or 'nothing')
`;

t.test('a program finds nothing of others in what it inherits', { skip: !isolation }, async t => {
  const pool = new SandboxPool({ slots: 1, guestSlots: 0, queueLength: 10, queueSeconds: 600 });
  t.teardown(() => pool.stop());
  const run = (owner: string, job: Partial<Job>) =>
    pool.run({ ...LIMITS, program: '', function: null, inputs: [''], ...job }, owner, asText);
  /** Programs, inputs, outputs and errors of small and large size, in calls and in programs. */
  const victimize = async () => {
    for (const size of [1, 100, 20_000]) {
      const text = (name: string) => `${MARK}${name}`.repeat(size);
      const program = `# ${text('alpha').slice(0, 40_000)}\nimport sys\nsys.stderr.write('${MARK}gamma')\nprint(input())`;
      const results = await run('victim', {
        program,
        inputs: [text('betas'), text('delta')],
        output_bytes: 1e6,
      });
      t.same(
        results.map(({ status }) => status),
        ['ok', 'ok'],
      );
      const called = `def f(x):\n    return x\n# ${MARK}kappa`;
      t.match(
        await run('victim', { program: called, function: 'f', inputs: [[text('theta')]], output_bytes: 1e6 }),
        [{ status: 'ok' }],
      );
    }
  };
  for (const [name, look] of Object.entries(ATTACKS)) {
    await victimize();
    const [first, second] = await run('attacker', {
      program: attack(look),
      inputs: [`${MARK}owned`, `${MARK}later\nx`],
    });
    t.equal(first.status, 'ok', name);
    const words = first.output.split('\n').filter(line => line !== '' && !line.startsWith('owned in '));
    t.same(
      words.filter(line => line !== 'nothing'),
      [],
      name,
    );
    t.match(second, { status: 'ok' });
    if (/frames|collector|page/.test(name))
      t.match(first.output, /^owned in /m, `${name}: it does find what is its own`);
  }
});

t.test('an error holds nothing of later tests', { skip: !isolation }, async t => {
  const pool = new SandboxPool({ slots: 1, guestSlots: 0, queueLength: 10, queueSeconds: 600 });
  t.teardown(() => pool.stop());
  const inputs = ['first', `${MARK}later`, `${MARK}final`];
  const program = `${LOOK}\n${ATTACKS['walks the frames']}\n${ATTACKS['asks the garbage collector']}\nraise ValueError(found)`;
  const [first] = await pool.run({ ...LIMITS, program, function: null, inputs }, 'attacker', asText);
  t.match(first, { status: 'error', error: 'ValueError: set()' });
});
