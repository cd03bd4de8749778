import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { readJsonLines } from './jsonlines.ts';
import { openTracker } from './tracker.ts';

t.test('a run that resumes drops the rows its checkpoint does not know', async t => {
  const folder = t.testdir();
  const file = join(folder, 'metrics.jsonl');
  const first = openTracker(file, { step: -1, validation: -1 }, undefined);
  for (const step of [1, 2, 3]) first.write(step, { loss: step });
  first.write(2, { 'val-env/success': 0.5 });
  const second = openTracker(file, { step: 2, validation: 0 }, undefined);
  second.write(3, { loss: 30 });
  t.match(readJsonLines(file), [
    { step: 1, loss: 1 },
    { step: 2, loss: 2 },
    { step: 3, loss: 30 },
  ]);
  t.equal(readJsonLines(file).length, 3);
});

const none = { step: -1, validation: -1 };

t.test('TensorBoard events are written only where asked', async t => {
  const folder = t.testdir();
  openTracker(join(folder, 'a.jsonl'), none, undefined).write(1, { loss: 1 });
  t.notOk(existsSync(join(folder, 'board')));
  openTracker(join(folder, 'b.jsonl'), none, join(folder, 'board')).write(1, { loss: 1 });
  t.match(readdirSync(join(folder, 'board'))[0], /tfevents/);
});
