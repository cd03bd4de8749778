import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { jsonLines, VERL_ROWS } from '../../site/compute/formats/samples.test-data.ts';

const MAIN = fileURLToPath(new URL('../main.ts', import.meta.url));

t.test('view serves a file until Ctrl-C, and leaves nothing behind', async t => {
  const folder = t.testdir({ tmp: {}, 'run 1.jsonl': jsonLines(VERL_ROWS) });
  const tmp = join(folder, 'tmp');
  const child = spawn(process.execPath, [MAIN, 'view', join(folder, 'run 1.jsonl'), '--port', '0'], {
    env: { ...process.env, TMPDIR: tmp },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  let output = '';
  for await (const piece of child.stdout) {
    output += piece;
    if (output.includes('Ctrl-C stops it')) break;
  }
  const [, origin] =
    /^2 episodes of verl: (http:\/\/127\.0\.0\.1:\d+)\/runs\/#\/run\/run%201\/episodes$/m.exec(output)!;
  const episodes = await fetch(`${origin}/runs/api/episodes?id=run+1&file=train-000003`);
  t.match(await episodes.json(), [{ return: 1 }, { return: -1 }]);
  child.kill('SIGINT');
  t.same(await once(child, 'exit'), [0, null]);
  t.same(readdirSync(tmp), []);
});

t.test('view refuses what is not a trajectory', async t => {
  const folder = t.testdir({ tmp: {}, 'a.jsonl': '{"loss": 1}\n' });
  const child = spawn(process.execPath, [MAIN, 'view', join(folder, 'a.jsonl')], {
    env: { ...process.env, TMPDIR: join(folder, 'tmp') },
    stdio: ['ignore', 'inherit', 'pipe'],
  });
  const [errors, [status]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
  t.equal(status, 1);
  t.match(
    errors,
    /^ragen: .*a\.jsonl: line 1 is not a trajectory: it has the fields \["loss"\]; the known formats are ATIF/,
  );
  t.same(readdirSync(join(folder, 'tmp')), []);
});
