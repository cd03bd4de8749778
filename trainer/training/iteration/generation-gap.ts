import { atEnd } from '../../../shared/closing.ts';
import { mean } from '../../algorithms/statistics.ts';
import { distributionChange } from '../../config/derived.ts';
import type { RunSettings } from '../../config/settings.ts';
import type { Metrics } from '../../data/episode-metrics.ts';
import { maskOf, samplingMask } from '../../data/token-weights.ts';
import type { Generator } from '../../generation/generation.ts';
import type { Policy, ScoreRequest } from '../../policy/policy.ts';
import { type Episode, samplesOf } from '../../rollout/episode.ts';

/** Episodes that are compared. */
const COMPARED = 32;
/** Prompts that engines continue where no episode can be compared, and the tokens of each. */
const PROBES = 8;
const PROBE_TOKENS = 16;
/** Higher than any sequence number of a run. */
const FIRST_PROBE = 2 ** 44;
/** Another explanation holds if it reduces the gap to this share. */
const FITS_BETTER = 0.5;
/** Factor on the temperature of a second probe of the engines: raw log-probabilities are further off there. */
const COLDER = 0.5;
/** Gaps up to this are rounding; no cause is looked for. */
const ROUNDING = 1e-3;
/** Standard errors of the bias that count as chance, and the share of `max_gap` that it may be beyond them. */
const CHANCE = 3;
const BIAS_SHARE = 0.25;
/** Standard errors of a 95 % interval. */
const INTERVAL = 1.96;

/** Why the engines' samples do not come from the learning policy. */
type GapCause = 'adapter' | 'raw' | 'narrow' | 'unknown';

const CAUSES: Readonly<Record<GapCause, string>> = {
  adapter: 'The tokens fit the policy without its adapter: the engine does not apply the adapter.',
  raw: 'The log-probabilities are those before the temperature: the engine reports raw ones, and vLLM needs --logprobs-mode processed_logprobs.',
  narrow:
    'The engine gives nearly every token more than the policy: it samples from a narrower distribution, by top_k, top_p, min_p or its own penalties (generation_config.json of its model, or its flags).',
  unknown:
    'Likely causes, in this order:\n' +
    '- it answers from the adapter or prefix cache of another version;\n' +
    '- it serves another base model or revision, or has another tokenizer;\n' +
    '- its precision is another (float16, quantized): raise generation.max_gap if that is meant.',
};

/** Engines sampled from a different policy than the learning one. */
class GenerationGapError extends Error {
  constructor({ mean, kl, error }: Gap, limit: number, cause: GapCause) {
    const interval = [kl - INTERVAL * error, kl + INTERVAL * error].map(bound => bound.toFixed(4));
    super(
      `log-probabilities of the generation engines differ by ${mean.toFixed(4)} nats on average from those of the policy ` +
        `that learns; the limit is ${limit} (generation.max_gap). Their bias is ${kl.toFixed(4)} (95 % interval ${interval.join(' to ')}). ` +
        `Nothing was learned from these tokens. ${CAUSES[cause]}`,
    );
    this.name = 'GenerationGapError';
  }
}

/** Parts of the learning policy that the comparison uses. */
export type ComparedPolicy = Pick<Policy, 'score' | 'scoreReference' | 'version' | 'config'>;

/** The generator and the versions of the weights that it received. */
export interface ComparedGenerator {
  readonly generator: Generator;
  /** Versions of the weights that it had, the present one last. */
  readonly published: readonly number[];
}

/**
 * Compares the engines with the learning policy. Returns `generation/logprob_gap_mean` and `_max` in nats, and
 * `generation/logprob_bias` with half of its 95 % interval, over tokens sampled under the policy's present weights, and
 * {@link olderGaps} for other tokens; nothing where no comparison is due. Asynchronous episodes may have no tokens of
 * the present weights: the engines then sample a few for the comparison, and some at a lower temperature. Nothing is
 * compared where top-k, penalties and the like change the engines' distribution. Correct engines of a lower precision
 * have a gap, but hardly a bias: rounding goes both ways. Wrong ones may have a smaller gap with a bias, or be wrong
 * only away from temperature 1; so all three are checked.
 * @throws GenerationGapError with the cause
 */
export async function checkedGap(
  settings: RunSettings,
  policy: ComparedPolicy,
  step: number,
  episodes: readonly Episode[],
  { generator, published }: ComparedGenerator,
): Promise<Metrics> {
  const { generation, rollout } = settings;
  const { temperature } = rollout;
  const { max_gap: limit } = generation;
  const due = step === 1 || step % generation.gap_every === 0;
  if (!due || distributionChange(rollout) !== undefined || temperature === 0) return {};
  const samples = samplesIn(episodes.slice(0, COMPARED), rollout.constrained, published);
  const fresh = samples.some(isPresent) ? [] : await probes(generator, policy, episodes, temperature);
  const compared = [...samples, ...fresh];
  if (compared.length === 0) return {};
  const gaps = await gapsByAge(policy, compared, temperature);
  const older = olderGaps(gaps);
  const present = gaps.get(0);
  if (present === undefined) return older;
  if (temperature !== 1) {
    const cold = await probes(generator, policy, episodes, COLDER * temperature);
    const gap = (await gapsByAge(policy, cold, COLDER * temperature)).get(0);
    if (gap && (await isRaw(policy, cold, gap))) throw new GenerationGapError(gap, limit, 'raw');
  }
  const biased = Math.abs(present.kl) - CHANCE * present.error > BIAS_SHARE * limit;
  if (present.mean > limit || biased) {
    const cause = await causeOf(policy, compared.filter(isPresent), present, temperature);
    throw new GenerationGapError(present, limit, cause);
  }
  return {
    'generation/logprob_gap_mean': present.mean,
    'generation/logprob_gap_max': present.max,
    'generation/logprob_bias': present.kl,
    'generation/logprob_bias_ci': INTERVAL * present.error,
    ...older,
  };
}

/** True if log-probabilities are those of temperature 1, although tokens were sampled at another. */
async function isRaw(
  policy: Pick<Policy, 'score'>,
  compared: readonly Compared[],
  gap: Gap,
): Promise<boolean> {
  if (gap.mean < ROUNDING) return false;
  const raw = (await gapsByAge(policy, compared, 1)).get(0);
  return raw !== undefined && raw.mean < FITS_BETTER * gap.mean;
}

async function causeOf(
  policy: ComparedPolicy,
  compared: readonly Compared[],
  gap: Gap,
  temperature: number,
): Promise<GapCause> {
  const score = policy.config?.lora && policy.scoreReference?.bind(policy);
  const bare = score && (await gapsByAge({ score }, compared, temperature)).get(0);
  if (bare && bare.mean < FITS_BETTER * gap.mean) return 'adapter';
  if (temperature !== 1 && (await isRaw(policy, compared, gap))) return 'raw';
  return gap.kl - CHANCE * gap.error > 0 && gap.kl > FITS_BETTER * gap.mean ? 'narrow' : 'unknown';
}

/** A sequence with log-probabilities to compare. */
interface Compared extends ScoreRequest {
  readonly logProbs: Float32Array;
  /** Published versions that a token's weights lie behind the present ones; −1 where it was not sampled. */
  readonly ages: Int32Array;
}

const NOT_SAMPLED = -1;

const isPresent = ({ ages }: Compared): boolean => ages.includes(0);

/** Samples of episodes that have sampled tokens. */
function samplesIn(
  episodes: readonly Episode[],
  constrained: boolean,
  published: readonly number[],
): Compared[] {
  const ageOf = (version: number) => published.length - 1 - published.findLastIndex(of => of <= version);
  return episodes.flatMap(episode =>
    samplesOf(episode)
      .filter(({ lossMask }) => lossMask.includes(1))
      .map(sample => {
        const { tokenIds, lossMask, logProbs, versions } = sample;
        const ages = Int32Array.from(versions, (version, t) => (lossMask[t] ? ageOf(version) : NOT_SAMPLED));
        return { tokenIds, lossMask, logProbs, ages, ...maskOf(sample, episode, constrained) };
      }),
  );
}

/** A few tokens after prompts of the episodes, sampled under the newest weights. */
async function probes(
  generator: Generator,
  policy: ComparedPolicy,
  episodes: readonly Episode[],
  temperature: number,
): Promise<Compared[]> {
  const prompts = episodes.flatMap(samplesOf).flatMap(({ tokenIds, lossMask }) => {
    const length = lossMask.indexOf(1);
    return length > 0 ? [tokenIds.subarray(0, length)] : [];
  });
  const sampling = { temperature, topK: 0, topP: 1, maxNewTokens: PROBE_TOKENS, stopTokenIds: [] };
  const found = await Promise.all(
    prompts.slice(0, PROBES).map(async (append, seed): Promise<Compared[]> => {
      const sequenceId = FIRST_PROBE + seed;
      using _sequence = atEnd(() => generator.release(sequenceId));
      const generation = await generator.generate({ sequenceId, append, sampling, seed });
      if (generation.versions.some(version => version !== policy.version)) return [];
      const sampled = generation.tokenIds.length;
      const lossMask = new Uint8Array(append.length + sampled).fill(1, append.length);
      const tokenIds = new Int32Array(lossMask.length);
      tokenIds.set(append);
      tokenIds.set(generation.tokenIds, append.length);
      const logProbs = new Float32Array(lossMask.length);
      logProbs.set(generation.logProbs, append.length);
      const ages = new Int32Array(lossMask.length).fill(NOT_SAMPLED, 0, append.length);
      return sampled === 0 ? [] : [{ tokenIds, lossMask, logProbs, ages }];
    }),
  );
  return found.flat();
}

/** Difference between log-probabilities of tokens of one age and those under the present weights, in nats. */
interface Gap {
  readonly mean: number;
  readonly max: number;
  /** Mean of sampled − present, as `actor/mismatch_kl`: the bias. */
  readonly kl: number;
  /** Standard error of `kl`; the tokens of a sequence count as one draw, as they are alike. */
  readonly error: number;
}

/** By versions behind the present weights, the newest first. */
async function gapsByAge(
  policy: Pick<Policy, 'score'>,
  compared: readonly Compared[],
  temperature: number,
): Promise<Map<number, Gap>> {
  const requests = compared.map(({ tokenIds, lossMask, ...others }) => ({
    tokenIds,
    lossMask,
    ...samplingMask(others),
  }));
  const scores = await policy.score(requests, { temperature });
  /** By age, and within it by sequence. */
  const differences = new Map<number, number[][]>();
  compared.forEach(({ logProbs, ages }, i) => {
    const ofSequence = new Map<number, number[]>();
    ages.forEach((age, t) => {
      if (age === NOT_SAMPLED) return;
      const known = ofSequence.get(age) ?? [];
      ofSequence.set(age, known);
      known.push(logProbs[t] - scores[i].logProbs[t]);
    });
    for (const [age, values] of ofSequence) differences.set(age, [...(differences.get(age) ?? []), values]);
  });
  const ordered = [...differences].sort(([a], [b]) => a - b);
  return new Map(ordered.map(([age, values]) => [age, gapOf(values)]));
}

function gapOf(sequences: readonly (readonly number[])[]): Gap {
  const differences = sequences.flat();
  const absolute = differences.map(Math.abs);
  const max = absolute.reduce((largest, value) => Math.max(largest, value), 0);
  const kl = mean(differences);
  const squares = sequences.reduce((sum, values) => {
    const rest = values.reduce((total, value) => total + value - kl, 0);
    return sum + rest * rest;
  }, 0);
  const { length } = sequences;
  const error = length < 2 ? 0 : Math.sqrt((squares * length) / (length - 1)) / differences.length;
  return { mean: mean(absolute), max, kl, error };
}

/**
 * `generation/logprob_gap_{mean,max}_<n>` and `generation/mismatch_kl_<n>` of tokens that were sampled n ≥ 1 versions
 * behind the present weights: how far off-policy they are. They have no limit, since the weights have changed since
 * then.
 */
function olderGaps(gaps: ReadonlyMap<number, Gap>): Metrics {
  const older = [...gaps].filter(([age]) => age > 0);
  return Object.fromEntries(
    older.flatMap(([age, gap]) => [
      [`generation/logprob_gap_mean_${age}`, gap.mean],
      [`generation/logprob_gap_max_${age}`, gap.max],
      [`generation/mismatch_kl_${age}`, gap.kl],
    ]),
  );
}
