import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { runTrainer } from './run-trainer.ts';

/** Players of an environment that learn nothing, on the levels of some tags. */
export interface ReferencePlayers {
  /** Name of the played environments, and of the file of the results. */
  readonly name: string;
  readonly config: string;
  /** Reference policies, `random` among them. */
  readonly policies: readonly string[];
  readonly tags: readonly string[];
}

/** Success by tag and reference policy. */
export type ReferenceSuccess = { readonly [tag: string]: { readonly [policy: string]: number } };

const EPISODES = 512;

interface Evaluation {
  readonly rows: readonly { readonly policy: string; readonly tag: string; readonly success: number }[];
}

/** Lets them play in a separate process; nothing where they have. @returns the exit status */
export async function playReferences(
  players: ReferencePlayers,
  folder: string,
  server: string,
  episodes = EPISODES,
): Promise<number | null> {
  const output = folderOf(players, folder);
  if (existsSync(join(output, 'evaluation.json'))) return 0;
  return runTrainer(
    [
      'evaluate',
      players.config,
      `servers=${JSON.stringify([{ url: server }])}`,
      `train_tags=[${players.tags.join(', ')}]`,
      `validation.tags=[${players.tags.join(', ')}]`,
      'validation.sets={}',
      `validation.episodes=${episodes}`,
      'seeds.validation=123',
      ...players.policies.flatMap(policy => ['--policy', policy]),
      '--output',
      output,
      '--quiet',
    ],
    'ignore',
  );
}

/** Success of the players that have finished. */
export function readReferences(all: readonly ReferencePlayers[], folder: string): ReferenceSuccess {
  const out: { [tag: string]: { [policy: string]: number } } = {};
  for (const players of all) {
    const file = join(folderOf(players, folder), 'evaluation.json');
    if (!existsSync(file)) continue;
    for (const { policy, tag, success } of (JSON.parse(readFileSync(file, 'utf8')) as Evaluation).rows)
      out[tag] = { ...out[tag], [policy]: success };
  }
  return out;
}

function folderOf({ name }: ReferencePlayers, folder: string): string {
  return join(folder, `references-${name.toLowerCase()}`);
}
