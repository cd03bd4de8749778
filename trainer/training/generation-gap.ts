import { mean } from '../algorithms/statistics.ts';
import { distributionChange } from '../config/derived.ts';
import type { RunSettings } from '../config/settings.ts';
import type { Metrics } from '../data/metrics.ts';
import type { Generator } from '../generation/generator.ts';
import type { LocalPolicy } from '../policy/local-policy.ts';
import type { ScoreRequest } from '../policy/policy.ts';
import { type Episode, samplesOf } from '../rollout/episode.ts';

/** Episodes that are compared. */
const COMPARED = 32;
/** Prompts that engines are asked to continue where no episode can be compared, and by how much. */
const PROBES = 8;
const PROBE_TOKENS = 16;
/** Above the numbers of the sequences of a run. */
const FIRST_PROBE = 2 ** 44;
/** The tokens come from the base where they fit it this much better than the policy, as a share of the gap. */
const FITS_BASE = 0.5;

/** What engines sampled does not come from the policy that learns. */
export class GenerationGapError extends Error {
  /** @param baseMean gap to the policy without its adapter; null where it has none */
  constructor(mean: number, limit: number, baseMean: number | null) {
    const causes =
      baseMean !== null && baseMean < FITS_BASE * mean
        ? `They differ by ${baseMean.toFixed(4)} from those of the policy without its adapter: the engine does not apply the adapter.`
        : 'Likely causes, in this order:\n' +
          '- the engine reports raw log-probabilities: vLLM needs --logprobs-mode processed_logprobs;\n' +
          '- it answers from the adapter or prefix cache of another version;\n' +
          '- it serves another base model or revision, or has another tokenizer;\n' +
          '- its precision is another (float16, quantized): raise generation.max_gap if that is meant.';
    super(
      `log-probabilities of the generation engines differ by ${mean.toFixed(4)} nats on average from those of the policy ` +
        `that learns; allowed are ${limit} (generation.max_gap). Nothing was learned from these tokens. ${causes}`,
    );
    this.name = 'GenerationGapError';
  }
}

/** What the comparison needs of the policy that learns. */
export type ComparedPolicy = Pick<LocalPolicy, 'score' | 'scoreReference' | 'version' | 'config'>;

/**
 * `generation/logprob_gap_mean` and `_max` in nats, over tokens that were sampled under the policy's present weights; empty
 * where it is not time to compare. Asynchronous episodes have none of those: the engines sample a few for the comparison.
 * Nothing is compared where top-k, penalties and the like change the engines' distribution.
 * @param generator what samples under the present weights
 * @throws GenerationGapError when the mean is above `generation.max_gap`
 */
export async function checkedGap(
  settings: RunSettings,
  policy: ComparedPolicy,
  step: number,
  episodes: readonly Episode[],
  generator: Generator,
): Promise<Metrics> {
  const { generation, rollout } = settings;
  const due = step === 1 || step % generation.gap_every === 0;
  if (!due || distributionChange(rollout) !== undefined || rollout.temperature === 0) return {};
  const own = tokensOf(episodes.slice(0, COMPARED), rollout.constrained, policy.version);
  const compared = own.length > 0 ? own : await probes(generator, policy, episodes, rollout.temperature);
  if (compared.length === 0) return {};
  const gap = await gapTo(policy, compared, rollout.temperature);
  if (gap.mean <= generation.max_gap) {
    return { 'generation/logprob_gap_mean': gap.mean, 'generation/logprob_gap_max': gap.max };
  }
  const base = { score: policy.scoreReference.bind(policy) };
  const bare = policy.config.lora && (await gapTo(base, compared, rollout.temperature));
  throw new GenerationGapError(gap.mean, generation.max_gap, bare?.mean ?? null);
}

/** A sequence with tokens whose log-probabilities are compared. */
interface Compared extends ScoreRequest {
  readonly logProbs: Float32Array;
  /** 1 where the token was sampled under the present weights; a part of the loss mask. */
  readonly present: Uint8Array;
}

/** Samples of episodes that have tokens of this version. */
function tokensOf(episodes: readonly Episode[], constrained: boolean, version: number): Compared[] {
  return episodes.flatMap(episode =>
    samplesOf(episode).flatMap(({ tokenIds, lossMask, logProbs, versions }) => {
      const present = lossMask.map((trained, t) => (trained && versions[t] === version ? 1 : 0));
      if (!present.includes(1)) return [];
      const grammar = constrained ? { grammar: episode.tag } : {};
      return [{ tokenIds, lossMask, logProbs, present, ...grammar }];
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
      try {
        const generation = await generator.generate({ sequenceId, append, sampling, seed });
        if (generation.versions.some(version => version !== policy.version)) return [];
        const sampled = generation.tokenIds.length;
        const present = new Uint8Array(append.length + sampled).fill(1, append.length);
        const tokenIds = new Int32Array(present.length);
        tokenIds.set(append);
        tokenIds.set(generation.tokenIds, append.length);
        const logProbs = new Float32Array(present.length);
        logProbs.set(generation.logProbs, append.length);
        return sampled === 0 ? [] : [{ tokenIds, lossMask: present, logProbs, present }];
      } finally {
        generator.release(sequenceId);
      }
    }),
  );
  return found.flat();
}

async function gapTo(
  policy: Pick<LocalPolicy, 'score'>,
  compared: readonly Compared[],
  temperature: number,
): Promise<{ readonly mean: number; readonly max: number }> {
  const requests = compared.map(({ tokenIds, lossMask, grammar }) =>
    grammar === undefined ? { tokenIds, lossMask } : { tokenIds, lossMask, grammar },
  );
  const scores = await policy.score(requests, { temperature });
  const gaps = compared.flatMap(({ logProbs, present }, i) =>
    Array.from(present.keys())
      .filter(t => present[t] === 1)
      .map(t => Math.abs(logProbs[t] - scores[i].logProbs[t])),
  );
  return { mean: mean(gaps), max: Math.max(...gaps) };
}
