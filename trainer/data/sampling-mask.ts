import type { ScoreRequest } from '../policy/policy.ts';
import type { EpisodeSample } from '../rollout/episode.ts';

/** The mask that the sampled tokens of a sequence were chosen under; neither: all tokens. */
type SamplingMask = Pick<ScoreRequest, 'grammar' | 'allowed'>;

/** The mask of a sequence alone. */
export function samplingMask({ grammar, allowed }: SamplingMask): SamplingMask {
  return { ...(grammar === undefined ? {} : { grammar }), ...(allowed === undefined ? {} : { allowed }) };
}

/**
 * The mask that a sample was drawn under: what its states allowed, or the grammar named after its tag.
 * @param before tokens that are put before the sample's
 */
export function maskOf(
  { allowed }: Pick<EpisodeSample, 'allowed'>,
  { tag }: { readonly tag: string },
  constrained = false,
  before = 0,
): SamplingMask {
  if (!constrained) return {};
  if (allowed === undefined) return { grammar: tag };
  return { allowed: before === 0 ? allowed : new Map([...allowed].map(([t, ids]) => [before + t, ids])) };
}
