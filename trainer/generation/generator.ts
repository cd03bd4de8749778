import type { GenerateRequest, Generation } from './generation.ts';

/**
 * What samples tokens: the policy's own threads, or engines elsewhere. Token ids go in and come out;
 * they are never made from text again on the way.
 */
export interface Generator {
  /** Appends tokens to a sequence and samples a continuation. */
  generate(request: GenerateRequest): Promise<Generation>;
  /** Forgets a sequence; unknown ids are ignored. */
  release(sequenceId: number): void;
}
