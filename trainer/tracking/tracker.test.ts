import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { readJsonLines } from './jsonlines.ts';
import { openTracker } from './tracker.ts';

t.test('a run that resumes drops the rows its checkpoint does not know', async t => {
  const folder = t.testdir();
  const file = join(folder, 'metrics.jsonl');
  const first = openTracker(file, 0, undefined);
  for (const step of [1, 2, 3]) first.write(step, { loss: step });
  const second = openTracker(file, 2, undefined);
  second.write(3, { loss: 30 });
  t.match(readJsonLines(file), [
    { step: 1, loss: 1 },
    { step: 2, loss: 2 },
    { step: 3, loss: 30 },
  ]);
  t.equal(readJsonLines(file).length, 3);
});

t.test('TensorBoard events are written only where asked', async t => {
  const folder = t.testdir();
  openTracker(join(folder, 'a.jsonl'), 0, undefined).write(1, { loss: 1 });
  t.notOk(existsSync(join(folder, 'board')));
  openTracker(join(folder, 'b.jsonl'), 0, join(folder, 'board')).write(1, { loss: 1 });
  t.match(readdirSync(join(folder, 'board'))[0], /tfevents/);
});
