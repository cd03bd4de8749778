import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeSampleRun } from '../../site/server/sample-runs.test-data.ts';

/** Writes a run with `rows` rows of metrics. */
export function writeLongRun(root: string, id: string, rows: number): void {
  const run = writeSampleRun(root, id, { steps: 0 });
  const lines = Array.from({ length: rows }, (_, step) => {
    const value = Math.sin(step / 1000) + ((step * 7919) % 1000) / 1000;
    return `{"step":${step},"time":"2026-01-01T00:00:00.000Z","train/return":${value.toFixed(4)},"actor/entropy":1.5}\n`;
  });
  writeFileSync(join(run, 'metrics.jsonl'), lines.join(''));
}

/** Writes the status files of many finished runs. */
export function writeManyRuns(root: string, count: number): void {
  for (let i = 0; i < count; i++) {
    const run = join(root, `run-${String(i).padStart(5, '0')}`);
    mkdirSync(run, { recursive: true });
    const validations = Array.from({ length: 20 }, (_, n) => ({
      step: 10 * n,
      success: ((i + n) % 20) / 20,
    }));
    const tags = [{ tag: 'Lake', env_id: 'FrozenLake-v0', config: {}, random: 0.25, optimum: 0.94 }];
    writeFileSync(
      join(run, 'status.json'),
      JSON.stringify({
        format: 1,
        state: 'finished',
        stage: 'done',
        step: 200,
        steps: 200,
        eta_s: null,
        pid: 1,
        host: 'x',
        seconds: 600,
        started_at: '2026-01-01T00:00:00.000Z',
        updated_at: '2026-01-01T00:10:00.000Z',
        notes: [],
        last_error: null,
        validations,
        run: {
          name: `run-${i}`,
          recipe: ['grpo'],
          advantage: 'grpo',
          seed: i,
          model: 'scratch',
          parameters: 1e5,
          tags,
        },
      }),
    );
  }
}
