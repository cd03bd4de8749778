import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'yaml';
import type { Json } from '../../../shared/json.ts';
import { RUN_FILES } from '../../../shared/run-folder/run-files.ts';
import {
  configHash,
  fingerprintOf,
  MAX_EPISODES_BYTES,
  MAX_RESULT_BYTES,
  MAX_RESULT_FILES,
  type PlayedResult,
  parseSignedResult,
  signResult,
} from '../../../shared/run-folder/signed-result.ts';
import { VERSION } from '../../../shared/version.ts';
import { groupBy } from '../../data/episode-metrics.ts';
import type { DescribedTag } from '../../rollout/described-tag.ts';
import type { Episode } from '../../rollout/episode.ts';
import { writeAtomically } from '../../tracking/atomic-file.ts';
import { writeEpisodes } from '../../tracking/trajectories.ts';
import type { RunFolder } from '../../training/run-folder/run-folder.ts';
import type { ValidationPlan } from '../../training/validation.ts';
import { evaluationRows } from './evaluation.ts';
import type { SigningKey } from './signing-key.ts';

const WEIGHTS = ['model.safetensors', 'adapter_model.safetensors'];

/** Episodes of a player in one mode. */
export interface PlayedMode {
  readonly policy: string;
  readonly mode: string;
  /** Iterations of training behind a checkpoint of the run. */
  readonly step?: number;
  readonly weights_sha256?: string;
  readonly plan: ValidationPlan;
  readonly tags: readonly DescribedTag[];
  /** A program played. */
  readonly program: boolean;
  readonly episodes: readonly Episode[];
}

/** SHA-256 of the weights in a folder; undefined where they are in none of the files with one name. */
export async function weightsHash(folder: string): Promise<string | undefined> {
  const name = WEIGHTS.find(one => existsSync(join(folder, one)));
  return name === undefined ? undefined : sha256(await readFile(join(folder, name)));
}

/**
 * Writes `result.json` into the folder of a run, and the episodes next to its evaluations, so that others can play them again.
 * An earlier `result.json` is replaced.
 * @returns the fingerprint of the author's key
 * @throws Error for episodes that nobody could check: some were lost, or they take too much room
 */
export function signResults(
  run: RunFolder,
  played: readonly PlayedMode[],
  { author, command, date, key }: { author: string; command: string; date: string; key: SigningKey },
): string {
  if (played.length > MAX_RESULT_FILES)
    throw new Error(`--sign: ${played.length} players and modes, more than ${MAX_RESULT_FILES}`);
  mkdirSync(run.evaluations, { recursive: true });
  const stamp = date.replaceAll(':', '-');
  const files: { path: string; bytes: number; sha256: string }[] = [];
  const results = played.flatMap((mode, i) => {
    const path = `${RUN_FILES.evaluations}/${stamp}-${i + 1}.jsonl`;
    const rows = resultsOf(mode, path);
    writeEpisodes(join(run.path, path), mode.episodes);
    const { size } = statSync(join(run.path, path));
    if (size > MAX_EPISODES_BYTES)
      throw new Error(
        `--sign: the episodes of ${mode.policy} take ${size} bytes, more than ${MAX_EPISODES_BYTES}: lower validation.episodes`,
      );
    files.push({ path, bytes: size, sha256: sha256(readFileSync(join(run.path, path))) });
    return rows;
  });
  const config = parse(readFileSync(run.config, 'utf8')) as { readonly run: { readonly name: string } };
  const result = {
    run: config.run.name,
    config_sha256: configHash(config),
    version: VERSION,
    date,
    command,
    author: { name: author, public_key: key.publicKey },
    results,
    files,
  };
  const text = `${JSON.stringify(signResult(result, key.privateKey), null, 1)}\n`;
  if (Buffer.byteLength(text) > MAX_RESULT_BYTES)
    throw new Error(`--sign: result.json would have more than ${MAX_RESULT_BYTES} bytes: sign fewer tags`);
  parseSignedResult(text);
  writeAtomically(run.result, text);
  return fingerprintOf(key.publicKey);
}

/** A result for each tag. @throws Error where a level lacks an attempt */
function resultsOf(played: PlayedMode, path: string): PlayedResult[] {
  const { plan, tags, policy, mode, step, weights_sha256, program, episodes } = played;
  const byTag = groupBy(episodes, episode => episode.tag);
  const rows = new Map(evaluationRows(policy, mode, episodes).map(row => [row.tag, row]));
  let first = plan.seed;
  return plan.tags.map(({ tag, groups }) => {
    const { tag: known } = tags.find(one => one.tag.name === tag)!;
    const attempts = plan.groupSize ?? 1;
    const missing = groups * attempts - (byTag.get(tag)?.length ?? 0);
    if (missing > 0)
      throw new Error(`--sign: ${missing} episodes of ${tag} were lost, so that its result is not whole`);
    const row = rows.get(tag)!;
    const seeds = { first, levels: groups, attempts };
    first += groups;
    return {
      policy,
      mode,
      ...(step === undefined ? {} : { step }),
      ...(weights_sha256 === undefined ? {} : { weights_sha256 }),
      tag,
      environment: {
        env_id: known.environmentId,
        config: known.config as Record<string, Json>,
        max_turns: known.maxTurns,
        max_actions_per_turn: known.maxActionsPerTurn,
        max_actions_per_trajectory: known.maxActionsPerTrajectory,
        program,
      },
      seeds,
      success: row.success,
      success_low: row.success_low,
      success_high: row.success_high,
      ...(row.pass_at ? { pass_at: row.pass_at } : {}),
      episodes: path,
    };
  });
}

const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
