import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomUUID,
} from 'node:crypto';
import {
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { parse } from 'yaml';
import type { Json } from '../../../shared/json.ts';
import { VERSION } from '../../../shared/program.ts';
import { replaceFileSync } from '../../../shared/replace-file.ts';
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
import type { DescribedTag } from '../../rollout/described-tag.ts';
import type { Episode } from '../../rollout/episode.ts';
import { writeEpisodes } from '../../tracking/trajectories.ts';
import type { RunFolder } from '../../training/run-folder/run-folder.ts';
import type { ValidationPlan } from '../../training/validation.ts';
import { evaluationRows } from './evaluation.ts';

const WEIGHTS = ['model.safetensors', 'adapter_model.safetensors'];

/** Episodes of a player in one mode. */
export interface PlayedMode {
  readonly policy: string;
  readonly mode: string;
  /** Training iterations of a checkpoint of the run. */
  readonly step?: number;
  readonly weights_sha256?: string;
  readonly plan: ValidationPlan;
  readonly tags: readonly DescribedTag[];
  /** True if a program played. */
  readonly program: boolean;
  readonly episodes: readonly Episode[];
}

/** SHA-256 of the weights in a folder; undefined where no file has one of the known names. */
export async function weightsHash(folder: string): Promise<string | undefined> {
  const name = WEIGHTS.find(one => existsSync(join(folder, one)));
  return name === undefined ? undefined : sha256(await readFile(join(folder, name)));
}

/**
 * Writes `result.json` into the folder of a run, and the episodes next to its evaluations, so that others can replay
 * them. It replaces an earlier `result.json`.
 * @returns the fingerprint of the author's key
 * @throws Error for episodes that nobody could check: some were lost, or they are too large
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
  replaceFileSync(run.result, text);
  return fingerprintOf(key.publicKey);
}

/**
 * A result for each tag.
 * @throws Error where a level lacks an attempt
 */
function resultsOf(played: PlayedMode, path: string): PlayedResult[] {
  const { plan, tags, policy, mode, step, weights_sha256, program, episodes } = played;
  const byTag = Map.groupBy(episodes, episode => episode.tag);
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

/** Permission bits of group and others. */
const OTHERS = 0o077;

/** An author's signing key with its public part, 32 bytes as base64url. */
export interface SigningKey {
  readonly privateKey: KeyObject;
  readonly publicKey: string;
}

/** The file of the key, in the user's settings folder: run folders are shared, so it is never in one. */
export function signingKeyFile(env: Readonly<Record<string, string | undefined>> = process.env): string {
  return join(env.XDG_CONFIG_HOME || join(homedir(), '.config'), 'ragen', 'signing-key.pem');
}

/**
 * The author's Ed25519 key, made on first use.
 * @throws Error for a file that others can read, or that is not such a key
 */
export function openSigningKey(file = signingKeyFile()): SigningKey {
  const stats = lstatSync(file, { throwIfNoEntry: false });
  if (!stats) makeKey(file);
  else if (!stats.isFile()) throw new Error(`${file} is not a regular file`);
  else if (process.platform !== 'win32' && (stats.mode & OTHERS) !== 0)
    throw new Error(`${file}: others can read this private key; chmod 600 it, or remove it to get a new one`);
  let privateKey: KeyObject;
  try {
    privateKey = createPrivateKey(readFileSync(file));
  } catch (error) {
    throw new Error(`${file} holds no private key: ${(error as Error).message}; remove it to get a new one`);
  }
  if (privateKey.asymmetricKeyType !== 'ed25519')
    throw new Error(`${file} holds a ${privateKey.asymmetricKeyType} key, not Ed25519`);
  const { x } = createPublicKey(privateKey).export({ format: 'jwk' });
  return { privateKey, publicKey: x! };
}

/** Saves a new key atomically; if another process was first, its key stays. */
function makeKey(file: string): void {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  const partial = `${file}.${randomUUID()}`;
  const pem = generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' });
  writeFileSync(partial, pem, { flag: 'wx', mode: 0o600 });
  try {
    linkSync(partial, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    rmSync(partial);
  }
}
