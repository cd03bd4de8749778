import { distributionChange } from '../config/derived.ts';
import type { RunSettings } from '../config/settings.ts';
import type { Metrics } from '../data/metrics.ts';
import { scoreEpisodes } from '../data/scoring.ts';
import type { LocalPolicy } from '../policy/local-policy.ts';
import { type Episode, samplesOf } from '../rollout/episode.ts';

/** Episodes that are compared. */
const COMPARED = 32;
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
 * where it is not time to compare. Nothing is compared where top-k, penalties and the like change the engines' distribution.
 * @throws GenerationGapError when the mean is above `generation.max_gap`
 */
export async function checkedGap(
  settings: RunSettings,
  policy: ComparedPolicy,
  step: number,
  episodes: readonly Episode[],
): Promise<Metrics> {
  const { generation, rollout } = settings;
  const due = step === 1 || step % generation.gap_every === 0;
  if (!due || distributionChange(rollout) !== undefined || rollout.temperature === 0) return {};
  const some = episodes.slice(0, COMPARED);
  const gap = await gapTo(policy, some, settings, policy.version);
  if (gap === null) return {};
  if (gap.mean <= generation.max_gap) {
    return { 'generation/logprob_gap_mean': gap.mean, 'generation/logprob_gap_max': gap.max };
  }
  const base = { score: policy.scoreReference.bind(policy) };
  const bare = policy.config.lora && (await gapTo(base, some, settings, policy.version));
  throw new GenerationGapError(gap.mean, generation.max_gap, bare?.mean ?? null);
}

async function gapTo(
  policy: Pick<LocalPolicy, 'score'>,
  episodes: readonly Episode[],
  settings: RunSettings,
  version: number,
): Promise<{ readonly mean: number; readonly max: number } | null> {
  const scores = await scoreEpisodes(policy, episodes, settings);
  let sum = 0;
  let count = 0;
  let max = 0;
  for (const sample of episodes.flatMap(samplesOf)) {
    const score = scores.get(sample);
    if (score === undefined) continue;
    for (let t = 0; t < sample.lossMask.length; t++) {
      if (!sample.lossMask[t] || sample.versions[t] !== version) continue;
      const gap = Math.abs(sample.logProbs[t] - score.logProbs[t]);
      sum += gap;
      count++;
      if (gap > max) max = gap;
    }
  }
  return count === 0 ? null : { mean: sum / count, max };
}
