import type { ScoreRequest } from '../policy/policy.ts';
import type { EpisodeSample } from '../rollout/episode.ts';

/** Consecutive tokens of one role in a conversation. */
export interface ConversationNode {
  readonly role: string;
  /** The policy sampled it. */
  readonly sampled: boolean;
  readonly tokens: number;
  /** True for tokens of the message, false for the chat template; all true when absent or empty. */
  readonly isContent?: readonly boolean[];
}

/**
 * Cross-entropy weights of tokens that the policy did not write: those of their roles after the first sampled node, and
 * 0 for sampled tokens, for everything before, for roles without a weight and for the chat template. Source: ECHO
 * (arXiv 2605.24517); prime-rl `echo.py`, with the same roles in the same order.
 */
export function echoWeights(
  nodes: readonly ConversationNode[],
  roles: Readonly<Record<string, number>>,
): readonly Float32Array[] {
  let begun = false;
  return nodes.map(({ role, sampled, tokens, isContent = [] }) => {
    begun ||= sampled;
    const weight = begun && !sampled && Object.hasOwn(roles, role) ? roles[role] : 0;
    return Float32Array.from({ length: tokens }, (_, t) => (isContent[t] === false ? 0 : weight));
  });
}

/**
 * {@link echoWeights} of a sample, with all unsampled tokens from the environment. Its prompts mix messages and
 * template, so both count.
 * @param repeated tokens at the beginning that other samples train
 */
export function observationWeights(lossMask: Uint8Array, weight: number, repeated = 0): Float32Array {
  const nodes: ConversationNode[] = [];
  for (let start = 0; start < lossMask.length; ) {
    const sampled = lossMask[start] === 1;
    let end = start + 1;
    while (end < lossMask.length && (lossMask[end] === 1) === sampled) end++;
    nodes.push({ role: 'tool', sampled, tokens: end - start });
    start = end;
  }
  const weights = new Float32Array(lossMask.length);
  let at = 0;
  for (const own of echoWeights(nodes, { tool: weight })) {
    weights.set(own, at);
    at += own.length;
  }
  return weights.fill(0, 0, repeated);
}

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
