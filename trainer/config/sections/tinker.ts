import Type, { type Static } from 'typebox';
import { TINKER_SERVERS } from '../../policy/tinker/profiles.ts';
import { aboveZero, notNegative, orNull, positive, section, strict } from './schema.ts';

/** The server of `policy.runtime: tinker`. */
export const TinkerSection = Type.Object(
  {
    /** Address, without `/api/v1`, e.g. `http://gpu-1:8000`. */
    url: Type.String({ pattern: '^https?://' }),
    /** Which server it is, as the API does not say: `service`, `skyrl` (FSDP, Megatron), `skyrl-jax` or `ragen`. */
    server: Type.Enum([...TINKER_SERVERS]),
    /** Environment variable that holds the key; null: the server wants none. */
    token_env: orNull(Type.String({ minLength: 1 })),
    /** Newest checkpoints that the server keeps, besides those that the run's folder names. */
    keep_checkpoints: positive(3),
    /** Seconds after which the server drops a checkpoint; null: it stays until it is deleted. */
    ttl_s: orNull(Type.Integer({ minimum: 60 })),
    /** Price of a million tokens, in any currency; `train` is of tokens that are learned or scored. */
    price_per_million: Type.Object(
      { prefill: notNegative(0), sample: notNegative(0), train: notNegative(0) },
      section,
    ),
    /** Seconds that the run waits for a server that is away or full; six times as long for one that finishes nothing. */
    patience_s: aboveZero(600),
  },
  strict,
);
export type TinkerSection = Static<typeof TinkerSection>;
