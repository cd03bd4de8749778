import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { processStart } from '../../shared/run-folder/is-alive.ts';
import { ownRun } from './run.ts';

t.test('a run that another living process trains is refused, and no other', async t => {
  const path = t.testdir();
  const run = { path, status: join(path, 'status.json') };
  const other = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
  t.teardown(() => other.kill('SIGKILL'));
  const report = (status: object) => {
    const usual = {
      state: 'running',
      host: hostname(),
      pid: other.pid,
      updated_at: new Date().toISOString(),
    };
    writeFileSync(run.status, JSON.stringify({ ...usual, ...status }));
  };
  t.doesNotThrow(() => ownRun(run, () => {}), 'without a status');
  report({});
  t.throws(() => ownRun(run, () => {}), new RegExp(`process ${other.pid} is training the run in`));
  for (const status of [
    { state: 'stopped' },
    { host: 'elsewhere' },
    { pid: process.pid },
    { updated_at: new Date(Date.now() - 60_000).toISOString() },
  ]) {
    report(status);
    t.doesNotThrow(() => ownRun(run, () => {}), JSON.stringify(status));
  }
  const start = processStart(other.pid!);
  if (start !== null) {
    report({ pid_start: start, updated_at: new Date(Date.now() - 60_000).toISOString() });
    t.throws(
      () => ownRun(run, () => {}),
      /is training the run in/,
      'silent, as one that was stopped for a while',
    );
    report({ pid_start: '1' });
    t.doesNotThrow(() => ownRun(run, () => {}), 'the number is that of another process');
  }
  writeFileSync(run.status, '{');
  t.doesNotThrow(() => ownRun(run, () => {}), 'half a status');
  report({});
  other.kill('SIGKILL');
  await once(other, 'exit');
  t.doesNotThrow(() => ownRun(run, () => {}), 'the process is gone');
});

/** Standard output of processes that all run the code at one moment. @param modules bound to names, by their paths from here */
async function atOnce(
  count: number,
  modules: { readonly [names: string]: string },
  code: string,
): Promise<string[]> {
  const imports = Object.entries(modules).map(
    ([names, path]) => `import ${names} from ${JSON.stringify(new URL(path, import.meta.url).href)};`,
  );
  const start = Date.now() + 2000;
  const program = `${imports.join('')} while (Date.now() < ${start}); ${code}`;
  return Promise.all(
    Array.from({ length: count }, async () => {
      const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program]);
      return stdout;
    }),
  );
}

t.test('of processes that begin to train a run at the same moment one does', async t => {
  const path = t.testdir();
  const run = JSON.stringify({ path, status: join(path, 'status.json') });
  const outputs = await atOnce(
    4,
    { '{ ownRun }': './run.ts', '{ writeFileSync }': 'node:fs', '{ hostname }': 'node:os' },
    `const run = ${run};
    try {
      ownRun(run, () => {
        for (const end = Date.now() + 50; Date.now() < end; );
        writeFileSync(run.status, JSON.stringify({
          state: 'running', host: hostname(), pid: process.pid, updated_at: new Date().toISOString(),
        }));
      });
      console.log('owns it');
      setTimeout(() => {}, 3000);
    } catch (error) {
      console.log(error.message);
    }`,
  );
  t.equal(outputs.filter(text => text === 'owns it\n').length, 1);
  for (const text of outputs) t.match(text, /^owns it\n$|is (just about to train|training) the run in/);
});

t.test('runs without a name that begin at the same moment have separate folders', async t => {
  const settings = { run: { folder: t.testdir(), name: null } };
  const outputs = await atOnce(
    4,
    { '{ createRunFolder }': './run-folder/run-folder.ts' },
    `for (let i = 0; i < 25; i++) console.log(createRunFolder(${JSON.stringify(settings)}, 'demo').path);`,
  );
  const paths = outputs.flatMap(text => text.trim().split('\n'));
  t.equal(paths.length, 100);
  t.equal(new Set(paths).size, 100);
});
