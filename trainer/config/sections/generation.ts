import Type, { type Static } from 'typebox';
import { aboveZero, choice, orNull, positive, section } from './schema.ts';

export const GENERATION_ENGINES = ['local', 'ragen', 'vllm', 'sglang'] as const;

/** The sampler of tokens while a policy is trained: its own threads, or engines elsewhere. */
export const GenerationSection = Type.Object(
  {
    /** `local`: the policy's own threads; `ragen`: servers of `ragen serve`. */
    engine: choice(GENERATION_ENGINES, 'local'),
    /** Addresses of the engines, alike in model and settings, e.g. `http://gpu-1:8000`. */
    urls: Type.Array(Type.String({ pattern: '^https?://' }), { uniqueItems: true, default: [] }),
    /** Folder that the trainer writes and the engines read under the same path: each version of the weights lies there. */
    adapter_folder: orNull(Type.String({ minLength: 1 })),
    /** Environment variable that holds the engines' token, that of an administrator; null: they want none. */
    token_env: orNull(Type.String({ minLength: 1 })),
    /** Largest mean difference, in nats, between log-probabilities of the engines and of the policy that learns. */
    max_gap: aboveZero(0.05),
    /** Iterations between comparisons; the first is always compared. */
    gap_every: positive(10),
    /** Seconds until a request goes to another engine. */
    timeout_s: aboveZero(300),
    /** Seconds that the run waits when no engine answers. */
    patience_s: aboveZero(600),
  },
  section,
);
export type GenerationSection = Static<typeof GenerationSection>;
