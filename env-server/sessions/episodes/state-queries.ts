import { hash } from 'node:crypto';
import { isObject, type Json } from '../../../shared/json.ts';
import { Random, type RandomState } from '../../../shared/random.ts';
import type { Picture } from '../../environments/core/environment.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { Problem } from '../../problems.ts';
import { writtenValidActions } from '../../wrappers/layer.ts';
import { guarded, type Variant } from './variant.ts';

/** Characters of a level key: 96 bits of a hash. */
const LEVEL_ID_LENGTH = 16;

/**
 * Key of the level that an episode begins with; undefined where the environment does not define when levels are equal.
 */
export function levelIdOf(variant: Variant, state: Json): string | undefined {
  const { environment } = variant;
  if (!environment.levelKey) return undefined;
  const key = guarded(variant, 'to name its level', () => environment.levelKey!(state)) as string;
  return hash('sha256', `${environment.spec.id}\n${key}`, 'base64url').slice(0, LEVEL_ID_LENGTH);
}

/** Characters of a state key: 132 bits of a hash. */
const STATE_KEY_LENGTH = 22;

/** Key of the state of the environment and its wrappers, without the generator: equal for equal states. */
export function stateKeyOf(variant: Variant, state: Json): string {
  const text = `${variant.environment.spec.id}\n${sortedJson(state)}`;
  return hash('sha256', text, 'base64url').slice(0, STATE_KEY_LENGTH);
}

/** JSON text with sorted keys. */
const sortedJson = (value: Json): string =>
  JSON.stringify(value, (_key, part: Json) =>
    isObject(part) ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1))) : part,
  );

/** @throws Problem `unsupported` for an environment without pictures, `environment_fault` */
export function pictureOf(variant: Variant, state: Json, step: number): Picture {
  const picture = guarded(variant, `to paint step ${step}`, () => variant.environment.render?.(state)) as
    | Picture
    | undefined;
  if (!picture) throw new Problem('unsupported', `${variant.environment.spec.id} has no pictures`);
  return picture;
}

/** An episode, as far as hints for players need it. */
interface PlayedEpisode {
  readonly isOver: boolean;
  readonly state: Json;
  /** State of its generator. */
  readonly random: RandomState;
  /** Number of its steps so far. */
  readonly stepCount: number;
}

/** Request to a reference policy. */
export interface PlanRequest {
  readonly policy: string;
  readonly count: number;
  readonly turns?: number;
}

/** Keeps the draws of two steps apart when the environment drew nothing between them. */
const STEP_STRIDE = 0x9e3779b9;

/**
 * The next actions of a reference policy; none for an episode that is over. Its draws are seeded by the step and do not
 * touch the episode's generator.
 * @throws Problem `unknown_reference` listing the valid names, `environment_fault`
 */
export function planOf(
  variant: Variant,
  { isOver, state, random: [a, b, c, d], stepCount }: PlayedEpisode,
  { policy, count, turns }: PlanRequest,
): MaybePromise<readonly Json[]> {
  const references = variant.environment.references ?? {};
  if (!Object.hasOwn(references, policy)) {
    const names = Object.keys(references).join(', ') || 'none';
    throw new Problem(
      'unknown_reference',
      `${variant.environment.spec.id} has no reference policy "${policy}"; it has ${names}`,
    );
  }
  if (isOver) return [];
  const random = Random.fromState([
    ~a >>> 0,
    (b + Math.imul(stepCount, STEP_STRIDE)) >>> 0,
    c,
    (d ^ 1) >>> 0 || 1,
  ]);
  return guarded(variant, `to plan with ${policy}`, () =>
    references[policy].plan(state, count, random, turns),
  );
}

/** The legal actions in written form; null for an environment that cannot list them. */
export function validActionsOf(
  variant: Variant,
  { isOver, state }: PlayedEpisode,
): MaybePromise<readonly string[] | null> {
  const listed = writtenValidActions(variant.environment);
  if (!listed) return null;
  return isOver ? [] : guarded(variant, 'to list the valid actions', () => listed(state));
}
