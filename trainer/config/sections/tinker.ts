import Type, { type Static } from 'typebox';
import { TINKER_SERVERS } from '../../policy/tinker/profiles.ts';
import { aboveZero, notNegative, orNull, positive, section, strict } from './schema.ts';

/** The server of `policy.runtime: tinker`. */
export const TinkerSection = Type.Object(
  {
    /** Address without `/api/v1`. */
    url: Type.String({ pattern: '^https?://' }),
    /** Kind of server; `skyrl` means FSDP or Megatron. */
    server: Type.Enum([...TINKER_SERVERS]),
    /** Environment variable with the key; null: none. */
    token_env: orNull(Type.String({ minLength: 1 })),
    /** Newest checkpoints that the server keeps. */
    keep_checkpoints: positive(3),
    /** Lifetime of a checkpoint at the server; null: unlimited. */
    ttl_s: orNull(Type.Integer({ minimum: 60 })),
    /** Price of a million tokens; `train`: learned or scored. */
    price_per_million: Type.Object(
      { prefill: notNegative(0), sample: notNegative(0), train: notNegative(0) },
      section,
    ),
    /** Seconds to wait for a server that is unreachable or full. */
    patience_s: aboveZero(600),
  },
  strict,
);
export type TinkerSection = Static<typeof TinkerSection>;
