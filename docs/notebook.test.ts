import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';

const PAGE = join(import.meta.dirname, 'how-to/notebook.md');

t.test('the Python of the page about notebooks loads runs, unfinished ones included', async t => {
  const [, python] = /```python\n(.*?)```/s.exec(readFileSync(PAGE, 'utf8'))!;
  const line = (row: object) => `${JSON.stringify(row)}\n`;
  const folder = t.testdir({
    runs: {
      done: {
        'metrics.jsonl':
          line({ step: 0, 'val-env/success': 0.25 }) +
          line({ step: 1, 'train/success': 0.5 }) +
          line({ step: 1, 'val-env/success': 0.75 }),
      },
      sweep: { begun: { 'metrics.jsonl': `${line({ step: 0, 'sft/loss': 1 })}{"step":0,"sft/l` } },
    },
  });
  const said = await new Promise<string>((resolve, reject) => {
    const run = (error: Error | null, output: string) => (error ? reject(error) : resolve(output));
    execFile(
      process.env.RAGEN_PYTHON ?? 'python3',
      ['-c', `${python}print(runs["done"]["train/success"])\n`],
      { cwd: folder },
      run,
    );
  });
  t.equal(said, 'begun not validated yet\ndone (1, 0.75)\n[(1, 0.5)]\n');
});
