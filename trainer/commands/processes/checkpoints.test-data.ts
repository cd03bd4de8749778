import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { Test } from 'tap';
import type { TrajectoryRecord } from '../../../shared/run-folder/run-files.ts';
import { createDashboard } from '../../dashboard/server.ts';
import { serve } from '../../rollout/server.test-data.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import { tinySettings, trainTiny } from '../../training/runs.test-data.ts';
import { CheckpointProcesses } from './checkpoint-processes.ts';

export const TOKEN = 'the-token-of-the-dashboard';
/** A checkpoint loads in seconds on an idle machine. */
export const MAX_MS = 600_000;

/** A tiny run with two checkpoints, its first episode with several turns, and a dashboard that may ask them. */
export async function asked(
  t: Test,
  limits?: { readonly idleMs?: number },
  more: { readonly [section: string]: object } = {},
) {
  const [{ name: server }] = (await serve(t)).servers;
  const runs = t.testdir();
  const run = await trainTiny(
    tinySettings(server, runs, 'lake', {
      rollout: { constrained: true, ...more.rollout },
      training: { steps: 2, checkpoint_every: 1 },
      tracking: { trajectories_every: 1 },
      algorithm: { ...more.algorithm },
    }),
  );
  const records = readJsonLines(join(run.trajectories, 'train-000001.jsonl')) as TrajectoryRecord[];
  const index = records.findIndex(({ turns }) => turns.length > 1);
  const place = { file: 'train-000001', index, turn: 1 };
  const checkpoints = new CheckpointProcesses(server, limits);
  const settings = { runs, server, host: '127.0.0.1', allowedHosts: '', controlToken: TOKEN, checkpoints };
  const app = await createDashboard(settings);
  t.teardown(() => app.close());
  const send = async (payload: object, token = TOKEN) => {
    const reply = await app.inject({
      method: 'POST',
      url: '/runs/api/checkpoint?id=lake',
      payload,
      headers: { host: '127.0.0.1', authorization: `Bearer ${token}` },
    });
    return { status: reply.statusCode, body: reply.json() };
  };
  const read = async (path: string) =>
    (await app.inject({ url: `/runs/api/${path}`, headers: { host: '127.0.0.1' } })).json();
  /** The prompt of the turn as the page shows it. */
  const prompt = async (): Promise<string> => {
    const { episode, texts } = await read(`episode?id=lake&file=${place.file}&index=${index}`);
    const { tokens, sample } = episode.turns[place.turn];
    return episode.samples[sample].token_ids
      .slice(0, tokens[0])
      .map((id: number) => texts[id])
      .join('');
  };
  return { app, run, checkpoints, place, send, read, prompt, records, record: records[index] };
}

/** Waits until a process of this id is gone. */
export async function gone(pid: number): Promise<void> {
  for (;;) {
    try {
      process.kill(pid, 0);
    } catch {
      return;
    }
    await pause(50);
  }
}
