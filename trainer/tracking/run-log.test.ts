import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmdirSync, statSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { silentProgress } from './progress.ts';
import { RunLog } from './run-log.ts';

const TIME = Date.UTC(2026, 0, 1);
const STAMP = '2026-01-01T00:00:00.000Z';
const MAX_BYTES = 2 ** 20;

const fail = (text: string) => {
  throw new Error(text);
};
const read = (file: string) => readFileSync(file, 'utf8');

t.test('lines are kept with their time, also those from before the folder was there', async t => {
  const file = join(t.testdir(), 'log.txt');
  using log = new RunLog(fail, () => TIME);
  const progress = log.logged(silentProgress);
  progress.warn('no server answers yet');
  log.open(file);
  progress.begin('training', 2, 0);
  progress.update(1, { success: '50 %' });
  progress.update(2, { success: '60 %' });
  progress.end();
  progress.note('two\nlines of \x1b[31mred\u202e');
  t.equal(
    read(file),
    [
      'no server answers yet',
      'training 1/2 · success 50 %',
      'training 2/2 · success 60 %',
      'two',
      'lines of \\u001b[31mred\\u202e',
    ]
      .map(line => `${STAMP} ${line}\n`)
      .join(''),
  );
});

t.test('a resumed run appends, also to half a line', async t => {
  const file = join(t.testdir({ 'log.txt': `${STAMP} first\n${STAMP} hal` }), 'log.txt');
  using log = new RunLog(fail, () => TIME);
  log.open(file);
  log.write('second');
  t.equal(read(file), `${STAMP} first\n${STAMP} hal\n${STAMP} second\n`);
});

t.test('the file is bounded: its older half goes, and long lines are cut', async t => {
  const file = join(t.testdir(), 'log.txt');
  using log = new RunLog(fail, () => TIME);
  for (let i = 0; i < 1000; i++) log.write('ü'.repeat(100_000));
  log.open(file);
  t.ok(statSync(file).size <= MAX_BYTES, 'many long lines at once');
  let largest = 0;
  for (let i = 0; i < 1500; i++) {
    log.write(`${i} ${'é'.repeat(500)}`);
    largest = Math.max(largest, statSync(file).size);
  }
  t.ok(largest > MAX_BYTES * 0.9 && largest <= MAX_BYTES, `${largest} bytes`);
  const lines = read(file).split('\n').slice(0, -1);
  t.match(lines.at(-1), / 1499 é/);
  t.ok(
    lines.every(line => line.startsWith(STAMP)),
    'whole lines',
  );
  log.write('x'.repeat(10_000));
  t.match(read(file), /x… \(1808 characters more\)\n$/);
});

t.test('a disk that takes nothing costs lines, which are counted, and one warning', async t => {
  const folder = t.testdir();
  const file = join(folder, 'log.txt');
  mkdirSync(file);
  const warnings: string[] = [];
  using log = new RunLog(
    text => warnings.push(text),
    () => TIME,
  );
  log.open(file);
  log.write('lost');
  log.write('lost, too\nand this');
  rmdirSync(file);
  log.write('back');
  t.equal(read(file), `${STAMP} lines that could not be written here: 3\n${STAMP} back\n`);
  t.match(warnings, [/log\.txt cannot be written \(EISDIR.*; the run continues without/]);
  t.equal(warnings.length, 1);
});

t.test('neither a link nor a device takes lines', async t => {
  const folder = t.testdir({ other: 'untouched' });
  const warnings: string[] = [];
  using log = new RunLog(text => warnings.push(text));
  log.open('/dev/null');
  log.write('a device is no log');
  const file = join(folder, 'log.txt');
  symlinkSync('other', file);
  log.open(file);
  log.write('a link is not followed');
  t.equal(read(join(folder, 'other')), 'untouched');
  t.match(warnings, [/not a regular file/]);
});

/** Runs a program with a log in a separate process, in which a file may have one block. */
function runProgram(file: string, program: string) {
  const imports = `import { RunLog } from ${JSON.stringify(import.meta.resolve('./run-log.ts'))};`;
  const opened = `${imports} const log = new RunLog(console.log); log.open(${JSON.stringify(file)}); ${program}`;
  // Without what the test runner adds to every Node process: its files are larger than a block.
  const script = 'unset NODE_OPTIONS; ulimit -f 1; exec "$0" --input-type=module -e "$1"';
  return spawnSync('sh', ['-c', script, process.execPath, opened], { encoding: 'utf8' });
}

t.test('a disk that becomes full in the middle of a line costs lines only', async t => {
  const file = join(t.testdir(), 'log.txt');
  const { status, stdout } = runProgram(file, "for (let i = 0; i < 9; i++) log.write('x'.repeat(300));");
  t.equal(status, 0);
  t.match(stdout, /^\S+log\.txt cannot be written \(EFBIG.*; the run continues without\n$/);
  t.match(statSync(file).size % 512, 0, 'the file is full');
  using log = new RunLog(fail, () => TIME);
  log.open(file);
  log.write('there is room again');
  t.match(read(file), `x\n${STAMP} there is room again\n`);
});

t.test('debug records of the trainer are in its log', async t => {
  const file = join(t.testdir(), 'log.txt');
  const program = `process.env.RAGEN_LOG_LEVEL = 'debug';
    const { trainerLog } = await import(${JSON.stringify(import.meta.resolve('../../shared/log.ts'))});
    trainerLog().debug({ rows: 2 }, 'said');`;
  const { status, stderr } = runProgram(file, program);
  t.equal(status, 0);
  t.match(stderr, /^\{"level":20,.*"rows":2,"msg":"said"\}\n$/);
  t.equal(read(file).slice(STAMP.length + 1), stderr);
});

t.test('the error that ends the process is in its log', async t => {
  const file = join(t.testdir(), 'log.txt');
  const { status } = runProgram(file, "setTimeout(() => { throw new Error('boom'); });");
  t.equal(status, 1);
  t.match(read(file), /Z Error: boom\n.*Z {5}at /);
});
