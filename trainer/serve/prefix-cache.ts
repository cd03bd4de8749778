/**
 * Sequences that have ended and whose cache may still be there. A prompt that begins with all tokens of one goes on with
 * it, so that a conversation's next turn costs only its own tokens. (Where prompts only begin alike, the engine shares
 * blocks by itself.)
 */
export class PrefixCache {
  readonly #most: number;
  readonly #release: (sequenceId: number) => void;
  readonly #entries = new Map<number, Int32Array>();

  /**
   * @param most sequences kept
   * @param release told of each sequence that is kept no longer
   */
  constructor(most: number, release: (sequenceId: number) => void) {
    this.#most = most;
    this.#release = release;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Takes the longest sequence that the prompt goes on from; undefined where there is none. */
  take(prompt: readonly number[]): { readonly sequenceId: number; readonly length: number } | undefined {
    let best: { readonly sequenceId: number; readonly length: number } | undefined;
    for (const [sequenceId, tokens] of this.#entries) {
      if (tokens.length <= (best?.length ?? 0) || !begins(prompt, tokens)) continue;
      best = { sequenceId, length: tokens.length };
    }
    if (best !== undefined) this.#entries.delete(best.sequenceId);
    return best;
  }

  /** Keeps a sequence; the one that was kept the longest goes where there are too many. */
  keep(sequenceId: number, tokens: Int32Array): void {
    this.#entries.set(sequenceId, tokens);
    if (this.#entries.size <= this.#most) return;
    const [oldest] = this.#entries.keys();
    this.#entries.delete(oldest);
    this.#release(oldest);
  }

  clear(): void {
    for (const sequenceId of this.#entries.keys()) this.#release(sequenceId);
    this.#entries.clear();
  }
}

/** Whether a prompt begins with these tokens and has more. */
function begins(prompt: readonly number[], tokens: Int32Array): boolean {
  if (tokens.length >= prompt.length) return false;
  // The end differs more often than the beginning.
  for (let i = tokens.length - 1; i >= 0; i--) if (prompt[i] !== tokens[i]) return false;
  return true;
}
