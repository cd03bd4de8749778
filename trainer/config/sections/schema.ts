import Type from 'typebox';
import { closed } from '../../../shared/schema/type.ts';

/** An optional section, because all its keys have defaults. */
export const section = <Keys extends Type.TProperties>(keys: Keys) => closed(keys, { default: {} });

export const positive = (value: number) => Type.Integer({ minimum: 1, default: value });
export const count = (value: number) => Type.Integer({ minimum: 0, default: value });
export const share = (value: number) => Type.Number({ minimum: 0, maximum: 1, default: value });
export const notNegative = (value: number) => Type.Number({ minimum: 0, default: value });
export const aboveZero = (value: number) => Type.Number({ exclusiveMinimum: 0, default: value });
export const flag = (value: boolean) => Type.Boolean({ default: value });
export const text = (value: string) => Type.String({ minLength: 1, default: value });
/** One of the names, with a default. */
export const choice = <T extends string>(names: readonly T[], value: NoInfer<T>) =>
  Type.Enum([...names], { default: value });
/** Null by default. */
export const orNull = <T extends Type.TSchema>(schema: T) =>
  Type.Union([Type.Null(), schema], { default: null });

const penalty = Type.Number({ minimum: -2, maximum: 2, default: 0 });

/**
 * How tokens are sampled, as transformers and vLLM do it. Temperature 0 is greedy; `top_k` 0, `top_p` 1, `min_p` 0,
 * `repetition_penalty` 1 and penalties of 0 change nothing. `logit_bias` is by token id.
 */
export const sampling = (temperature: number) => ({
  /** Divides the logits; 0 is greedy. */
  temperature: notNegative(temperature),
  /** Samples from the k likeliest tokens; 0: all. */
  top_k: count(0),
  /** Samples from the likeliest tokens with this total probability. */
  top_p: Type.Number({ exclusiveMinimum: 0, maximum: 1, default: 1 }),
  /** Drops tokens below this share of the largest probability. */
  min_p: share(0),
  /** Divides the logits of tokens that occurred; 1: off. */
  repetition_penalty: aboveZero(1),
  /** Subtracted from the logits of tokens that were sampled. */
  presence_penalty: penalty,
  /** Subtracted for each time that a token was sampled. */
  frequency_penalty: penalty,
  /** Added to logits, by token id. */
  logit_bias: Type.Record(
    Type.String({ pattern: '^[0-9]+$' }),
    Type.Number({ minimum: -100, maximum: 100 }),
    {
      additionalProperties: false,
      default: {},
    },
  ),
  /** Words that are never sampled. */
  bad_words: Type.Array(Type.String({ minLength: 1 }), { default: [] }),
});

/** A setting that conflicts with others, and the reason. */
export interface SettingConflict {
  readonly key: string;
  readonly message: string;
}

/** A conflict of a setting in words; anything but text is ignored. */
type Fault = string | boolean | number | null | undefined;

/** Faults by the key of their setting. */
export type Rules = { readonly [key: string]: Fault | readonly Fault[] };

export const conflictsOf = (rules: Rules): SettingConflict[] =>
  Object.entries(rules).flatMap(([key, faults]) =>
    [faults]
      .flat()
      .flatMap(message => (typeof message === 'string' && message !== '' ? [{ key, message }] : [])),
  );

/** The complaint of a check; undefined where it passes. */
export function faultOf(check: () => void): string | undefined {
  try {
    check();
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}
