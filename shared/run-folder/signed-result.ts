import { createHash, createPublicKey, type KeyObject, sign, verify } from 'node:crypto';
import type { Static } from 'typebox';
import { type Json, jsonOf } from '../json.ts';
import { compiled, fits } from '../schema/check.ts';
import { closed, Type } from '../schema/type.ts';

/** Most bytes of `result.json` and of an episode file, and most files of a result. */
export const MAX_RESULT_BYTES = 256 * 1024;
export const MAX_EPISODES_BYTES = 64 * 1024 * 1024;
export const MAX_RESULT_FILES = 16;
/** Levels and attempts of one result. */
const MAX_LEVELS = 100_000;
const MAX_ATTEMPTS = 1000;
const MAX_SEED = Number.MAX_SAFE_INTEGER - MAX_LEVELS;
/** Prefix of the signed text, so that a signature of any other text is invalid here. */
const PURPOSE = 'ragen result 1\n';

/** One line of text without control characters or direction marks. */
const line = (maxLength: number) => Type.String({ minLength: 1, maxLength, pattern: '^[^\\p{C}]*$' });
const Sha256 = Type.String({ pattern: '^[0-9a-f]{64}$' });
const Share = Type.Number({ minimum: 0, maximum: 1 });
const count = (minimum: number, maximum: number) => Type.Integer({ minimum, maximum });
/** Only names that `evaluate` writes, so no other file is ever opened. */
const EpisodesPath = Type.String({ pattern: '^evaluations/\\w[\\w.-]{0,150}\\.jsonl$' });

/** Success rate of one player on the levels of one environment. */
const PlayedResult = closed({
  policy: line(300),
  /** Sampling mode of the tokens, or `reference`. */
  mode: line(100),
  /** Training iterations of the checkpoint. */
  step: Type.Optional(count(0, 1e9)),
  weights_sha256: Type.Optional(Sha256),
  tag: line(200),
  environment: closed({
    env_id: line(200),
    config: Type.Record(Type.String(), Type.Unknown()),
    max_turns: count(1, 1e6),
    max_actions_per_turn: count(1, 1e6),
    max_actions_per_trajectory: count(1, 1e6),
    /** True where the author's own program played, so that only the server enforced the cap on actions. */
    program: Type.Boolean(),
  }),
  /** Level k has the seed `first` + k and is played `attempts` times. */
  seeds: closed({
    first: count(0, MAX_SEED),
    levels: count(1, MAX_LEVELS),
    attempts: count(1, MAX_ATTEMPTS),
  }),
  success: Share,
  /** Wilson 95 % interval over the levels. */
  success_low: Share,
  success_high: Share,
  pass_at: Type.Optional(Type.Record(Type.String({ pattern: '^[1-9][0-9]{0,3}$' }), Share)),
  /** Episode file, one of `files`. */
  episodes: EpisodesPath,
});
export type PlayedResult = Static<typeof PlayedResult>;

const RunResult = closed({
  run: line(300),
  /** SHA-256 of the canonical JSON of `config.yaml` without `servers` and `run`. */
  config_sha256: Sha256,
  /** Version of ragen. */
  version: line(50),
  date: Type.String({ pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z$' }),
  command: line(4000),
  author: closed({ name: line(100), public_key: Type.String({ pattern: '^[\\w-]{43}$' }) }),
  results: Type.Array(PlayedResult, { minItems: 1, maxItems: 64 }),
  /** Files that the results are computed from. */
  files: Type.Array(closed({ path: EpisodesPath, bytes: count(1, MAX_EPISODES_BYTES), sha256: Sha256 }), {
    minItems: 1,
    maxItems: MAX_RESULT_FILES,
  }),
});
/** Results of evaluating a run, with the hashes of the files they are computed from. */
export type RunResult = Static<typeof RunResult>;

/** Result of a replay: the number of episodes that agreed, or the first difference. */
export type ReplayVerdict = { readonly replayed: number } | { readonly differs: string };

const SignedResult = closed({
  format: Type.Literal(1),
  result: RunResult,
  signature: Type.String({ pattern: '^[\\w-]{86}$' }),
});
/** `result.json`: results with an Ed25519 signature, which covers the canonical JSON of `result`. */
export type SignedResult = Static<typeof SignedResult>;

const checked = compiled(SignedResult);

/** @throws Error unless the value is a signed result with a valid signature */
export function parseSignedResult(text: string): SignedResult {
  const value = jsonOf(text, () => new Error('result.json is not JSON'));
  if (!checked.check(value)) {
    const [first] = checked.errors(value);
    throw new Error(
      `result.json is not a signed result of format 1: ${first?.instancePath} ${first?.message}`,
    );
  }
  const signed = value as SignedResult;
  const { result, signature } = signed;
  const paths = new Set(result.files.map(({ path }) => path));
  if (paths.size < result.files.length) throw new Error('result.json names a file twice');
  const missing = result.results.find(({ episodes }) => !paths.has(episodes));
  if (missing) throw new Error(`${missing.episodes} is not among the \`files\` of result.json`);
  const key = publicKeyOf(result.author.public_key);
  if (!verify(null, signedBytes(result), key, Buffer.from(signature, 'base64url')))
    throw new Error('the signature is of another key or of other results');
  return signed;
}

/** True for a valid author name. */
export const isAuthorName = (name: string): boolean => fits(line(100), name);

/** @param key an Ed25519 private key, that of `result.author.public_key` */
export function signResult(result: RunResult, key: KeyObject): SignedResult {
  return { format: 1, result, signature: sign(null, signedBytes(result), key).toString('base64url') };
}

/** Fingerprint of a public key: the SHA-256 of its 32 bytes. */
export function fingerprintOf(publicKey: string): string {
  return `SHA256:${createHash('sha256').update(Buffer.from(publicKey, 'base64url')).digest('base64url')}`;
}

/** @throws Error unless the bytes are an Ed25519 key */
function publicKeyOf(x: string): KeyObject {
  return createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
}

function signedBytes(result: RunResult): Buffer {
  return Buffer.from(PURPOSE + canonicalJson(result));
}

/**
 * SHA-256 of a config without `servers` (which holds tokens) and `run`, so that runs with the same settings share it.
 */
export function configHash(config: unknown): string {
  const { servers: _servers, run: _run, ...settings } = config as { readonly [key: string]: unknown };
  return createHash('sha256').update(canonicalJson(settings)).digest('hex');
}

/**
 * JSON without spaces and with sorted keys (RFC 8785), the same for equal values.
 * @throws Error for values that are nested too deeply
 */
export function canonicalJson(value: unknown): string {
  try {
    return canonical(value);
  } catch (error) {
    if (error instanceof RangeError) throw new Error('the JSON is nested too deeply');
    throw error;
  }
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const entries = Object.entries(value)
    .filter(([, item]) => item !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${canonical(item)}`).join(',')}}`;
}

const Count = Type.Integer({ minimum: 0 });
const Actions = Type.Array(Type.Unsafe<Json>(Type.Unknown()));

/** Fields of a trajectory line that a replay of the episode needs. */
const SignedEpisode = Type.Object({
  episode_id: Type.String({ maxLength: 1000 }),
  env_id: Type.String(),
  tag: Type.String(),
  member: Count,
  seed: Count,
  dynamics_seed: Type.Optional(Count),
  success: Type.Boolean(),
  terminated: Type.Boolean(),
  truncation: Type.Optional(Type.Enum(['environment', 'max_actions', 'max_turns'])),
  ended_by: Type.Optional(Type.String()),
  turns: Type.Array(
    Type.Object({
      state: Type.String(),
      actions: Actions,
      sent: Type.Optional(Actions),
      reward: Type.Number(),
    }),
  ),
  final_state: Type.Optional(Type.String()),
});
export type SignedEpisode = Static<typeof SignedEpisode>;

const episode = compiled(SignedEpisode);
/** Fields of episodes that did not follow from their start by the policy's actions alone. */
const BRANCHED = ['reseeds', 'nodes', 'continuations', 'prefix'];

/** @throws Error unless the line is a whole validation episode */
export function signedEpisode(value: unknown): SignedEpisode {
  if (!episode.check(value)) {
    const [first] = episode.errors(value);
    throw new Error(`it is not an episode: ${first?.instancePath} ${first?.message}`);
  }
  const branched = BRANCHED.find(name => Object.hasOwn(value as object, name));
  if (branched !== undefined)
    throw new Error(`it is not an episode played from its start: it has \`${branched}\``);
  const known = value as SignedEpisode;
  const { episode_id, env_id, tag, member, seed, dynamics_seed, success, terminated } = known;
  const { truncation, ended_by, final_state } = known;
  const turns = known.turns.map(({ state, actions, sent, reward }) => ({ state, actions, sent, reward }));
  return {
    ...{ episode_id, env_id, tag, member, seed, dynamics_seed, success, terminated },
    ...{ truncation, ended_by, final_state, turns },
  };
}
