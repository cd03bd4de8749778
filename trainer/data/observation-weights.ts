/** A stretch of a conversation's tokens by one role. */
export interface ConversationNode {
  readonly role: string;
  /** The policy sampled it. */
  readonly sampled: boolean;
  readonly tokens: number;
  /** Which of its tokens are the message and not the chat template; all when absent or empty. */
  readonly isContent?: readonly boolean[];
}

/**
 * Weights in the cross-entropy of what others wrote in a conversation: those of their roles after the first sampled node, and 0 for
 * sampled tokens, for everything before, for roles without a weight and for the chat template.
 *
 * Source: ECHO (arXiv 2605.24517); prime-rl `echo.py`, with the same roles in the same order.
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
 * {@link echoWeights} of a sample, in which the environment wrote all that was not sampled. Its prompts are made of messages and
 * template together, so both count.
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
