import type { GenerateRequest } from '../../generation/generation.ts';

interface Home {
  readonly worker: number;
  readonly prompt: number;
}

/**
 * Assigns sequences to workers for generation. A new one goes to the worker with the fewest, or to a worker that
 * computes the same prompt for another sequence. The latter needs a prompt of at least as many tokens as may be sampled
 * for the extra sequences of that worker.
 */
export class Homes {
  /** By open sequence. */
  readonly #homes = new Map<number, Home>();
  /** Number of sequences of each worker, parked ones aside. */
  readonly #counts: number[];
  /** Sequences that count for no worker until they continue. */
  readonly #parked = new Set<number>();
  /** Worker of the newest sequence with a prompt, by the prompt's hash, and how many of its sequences are open. */
  readonly #prompts = new Map<number, { readonly worker: number; readonly open: number }>();

  constructor(workers: number) {
    this.#counts = new Array<number>(workers).fill(0);
  }

  /** @returns the worker of the sequence, which the first request opens */
  workerFor({
    sequenceId,
    append,
    sampling,
  }: Pick<GenerateRequest, 'sequenceId' | 'append' | 'sampling'>): number {
    const known = this.#homes.get(sequenceId);
    if (known !== undefined) {
      if (this.#parked.delete(sequenceId)) this.#counts[known.worker]++;
      return known.worker;
    }
    const prompt = hash(append);
    const least = Math.min(...this.#counts);
    const same = this.#prompts.get(prompt);
    const stays =
      same !== undefined && (this.#counts[same.worker] - least) * sampling.maxNewTokens <= append.length;
    const worker = stays ? same.worker : this.#counts.indexOf(least);
    const open = same?.worker === worker ? same.open + 1 : 1;
    this.#prompts.set(prompt, { worker, open });
    this.#homes.set(sequenceId, { worker, prompt });
    this.#counts[worker]++;
    return worker;
  }

  /** @returns the worker that had the sequence; undefined if it was not open */
  release(sequenceId: number): number | undefined {
    const home = this.#homes.get(sequenceId);
    if (home === undefined) return undefined;
    const { worker, prompt } = home;
    this.#homes.delete(sequenceId);
    if (!this.#parked.delete(sequenceId)) this.#counts[worker]--;
    const same = this.#prompts.get(prompt);
    if (same?.worker === worker) {
      if (same.open === 1) this.#prompts.delete(prompt);
      else this.#prompts.set(prompt, { worker, open: same.open - 1 });
    }
    return worker;
  }

  /** A parked sequence stays with its worker, but does not count for new assignments until it continues. */
  park(sequenceId: number): void {
    const home = this.#homes.get(sequenceId);
    if (home === undefined || this.#parked.has(sequenceId)) return;
    this.#parked.add(sequenceId);
    this.#counts[home.worker]--;
  }
}

/** FNV-1a over token ids. Two prompts with the same hash only share a worker. */
function hash(tokens: ArrayLike<number>): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < tokens.length; i++) value = Math.imul(value ^ tokens[i], 0x01000193);
  return value;
}
