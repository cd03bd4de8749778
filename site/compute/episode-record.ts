import { isObject, type Json, type JsonObject } from '../../shared/json.ts';
import type { EpisodeRecord, SampleRecord, TurnRecord } from '../../shared/run-folder/run-files.ts';
import { isEndName } from '../../shared/step-info.ts';

type Value = { readonly [key: string]: unknown };

/** Parses a line of a trajectory file, dropping fields of the wrong type; undefined for anything but an episode. */
export function episodeOf(value: Value | undefined): EpisodeRecord | undefined {
  if (!value || !Array.isArray(value.turns)) return undefined;
  const samples = list(value.samples).flatMap(item => sampleOf(object(item)) ?? []);
  return {
    episode_id: text(value.episode_id),
    env_id: text(value.env_id),
    tag: text(value.tag),
    group_id: number(value.group_id),
    member: number(value.member),
    seed: value.seed === null ? null : number(value.seed),
    ...(typeof value.dynamics_seed === 'number' ? { dynamics_seed: value.dynamics_seed } : {}),
    ...(Array.isArray(value.reseeds) ? { reseeds: value.reseeds.map(reseedOf) } : {}),
    server: text(value.server),
    success: value.success === null ? null : value.success === true,
    terminated: value.terminated === true,
    truncated: value.truncated === true,
    ...(isEndName(value.ended_by) ? { ended_by: value.ended_by } : {}),
    return: value.return === null ? null : number(value.return),
    ...(typeof value.format === 'string' ? { format: value.format } : {}),
    ...(typeof value.expected === 'string' ? { expected: value.expected } : {}),
    ...(typeof value.advantage === 'number' ? { advantage: value.advantage } : {}),
    ...(value.filter ? { filter: filterOf(object(value.filter)) } : {}),
    turns: value.turns.map(item => turnOf(object(item), samples)),
    final_state: text(value.final_state),
    ...(value.final_structured === undefined ? {} : { final_structured: value.final_structured as Json }),
    samples,
  };
}

function reseedOf(item: unknown) {
  const { step, dynamics_seed } = object(item);
  return { step: number(step), dynamics_seed: number(dynamics_seed) };
}

function filterOf({ score, std, kept }: Value) {
  return { score: number(score), std: number(std), kept: kept === true };
}

function turnOf(turn: Value, samples: readonly SampleRecord[]): TurnRecord {
  const sample = number(turn.sample);
  const length = samples[sample]?.token_ids.length ?? 0;
  const [start, end] = list(turn.tokens).map(number);
  const inside = start >= 0 && start <= end && end <= length;
  return {
    state: text(turn.state),
    ...(turn.structured === undefined ? {} : { structured: turn.structured as Json }),
    ...(Array.isArray(turn.between) ? { between: turn.between as readonly Json[] } : {}),
    actions_left: number(turn.actions_left),
    actions: list(turn.actions) as readonly Json[],
    ...(Array.isArray(turn.sent) ? { sent: turn.sent as readonly Json[] } : {}),
    ...(Array.isArray(turn.action_names) ? { action_names: turn.action_names.map(text) } : {}),
    reward: number(turn.reward),
    penalty: number(turn.penalty),
    ...(turn.rewards === undefined ? {} : { rewards: rewardsOf(object(turn.rewards)) }),
    info: object(turn.info) as JsonObject,
    llm_response: text(turn.llm_response),
    llm_raw_response: text(turn.llm_raw_response),
    tokens: inside ? [start, end] : [0, 0],
    sample,
    ...(turn.finish_reason === undefined ? {} : { finish_reason: text(turn.finish_reason) }),
  };
}

/** Named rewards with numeric values. */
function rewardsOf(rewards: Value): { readonly [name: string]: number } {
  return Object.fromEntries(Object.entries(rewards).map(([name, value]) => [name, number(value)]));
}

/** Undefined unless its lists are equally long. */
function sampleOf(sample: Value): SampleRecord | undefined {
  const ids = numbers(sample.token_ids);
  const of = (key: string) => {
    const values = numbers(sample[key]);
    return values?.length === ids?.length ? values : undefined;
  };
  const mask = of('mask');
  if (!ids || !mask) return undefined;
  const zeros = () => new Array<number>(ids.length).fill(0);
  const known = (['entropies', 'advantages', 'values', 'returns', 'reference_log_probs'] as const).flatMap(
    key => {
      const values = of(key);
      return values ? [[key, values] as const] : [];
    },
  );
  return {
    token_ids: ids,
    mask,
    log_probs: of('log_probs') ?? zeros(),
    versions: of('versions') ?? zeros(),
    ...Object.fromEntries(known),
    ...topLogProbsOf(sample.top_logprobs, ids.length),
  };
}

/** The likeliest tokens, one list for each token; anything but a list of pairs becomes an empty list. */
function topLogProbsOf(value: unknown, length: number): Pick<SampleRecord, 'top_logprobs'> {
  if (!Array.isArray(value) || value.length !== length) return {};
  const pairs = (item: unknown): readonly number[] | 0 =>
    Array.isArray(item) && item.length % 2 === 0 && item.every(part => typeof part === 'number')
      ? (item as readonly number[])
      : 0;
  return { top_logprobs: value.map(pairs) };
}

function numbers(value: unknown): number[] | undefined {
  return Array.isArray(value) ? value.map(number) : undefined;
}

const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const text = (value: unknown): string => (typeof value === 'string' ? value : '');
const number = (value: unknown): number => (typeof value === 'number' ? value : 0);
/** An object of JSON; one without keys for anything else. */
export const object = (value: unknown): JsonObject => (isObject(value) ? value : {});
