import type { ScoreRequest } from '../policy/policy.ts';
import type { EpisodeSample } from '../rollout/episode.ts';

/** Mask under which a sequence's sampled tokens were chosen; without either: all tokens. */
type SamplingMask = Pick<ScoreRequest, 'grammar' | 'allowed'>;

/** The mask of a sequence alone. */
export function samplingMask({ grammar, allowed }: SamplingMask): SamplingMask {
  return { ...(grammar === undefined ? {} : { grammar }), ...(allowed === undefined ? {} : { allowed }) };
}

/**
 * Mask under which a sample was drawn: the allowed actions of its states, or the grammar named after its tag.
 * @param before tokens put before the sample's
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
