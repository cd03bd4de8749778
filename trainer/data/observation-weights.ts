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
