import type { Annotations } from '../../shared/run-folder/requests.ts';
import type { RunDescription, ValidationPoint } from '../../shared/run-folder/run-files.ts';
import { type Outcome, outcomeOf, type Verdict } from './outcome.ts';
import type { SettingValue } from './settings-text.ts';

/** Fields of a run that queries read. */
export interface QueriedRun {
  readonly id: string;
  readonly state: Exclude<Outcome, Verdict>;
  readonly step: number;
  readonly seconds: number;
  readonly started: number | null;
  readonly updated: number;
  readonly validations: readonly ValidationPoint[];
  readonly run: RunDescription;
  readonly annotations?: Annotations;
}

/** Value of a setting; undefined where the run lacks it. */
export type SettingOf<R> = (run: R, key: string) => SettingValue | undefined;

type Field = (run: QueriedRun) => SettingValue | undefined;

const texts = (list: readonly string[]): string => list.join(', ');

/** Fields that queries, columns and orders may name in addition to settings. */
export const RUN_FIELDS: { readonly [name: string]: Field } = {
  name: run => run.id,
  state: run => outcomeOf(run),
  success: run => run.validations.at(-1)?.success,
  gain: ({ validations }) =>
    validations.length > 1 ? validations.at(-1)!.success - validations[0].success : undefined,
  env: ({ run }) => texts(run.tags.flatMap(({ tag, env_id }) => [tag, env_id])),
  recipe: ({ run }) => texts(run.recipe),
  advantage: ({ run }) => run.advantage,
  model: ({ run }) => run.model,
  seed: ({ run }) => run.seed,
  steps: run => run.step,
  time: run => run.seconds,
  started: run => run.started ?? undefined,
  updated: run => run.updated,
  tag: ({ annotations }) => texts(annotations?.tags ?? []),
  note: ({ annotations }) => annotations?.note,
};

/** Made once, so that 10,000 runs are sorted in milliseconds. */
const COLLATOR = new Intl.Collator('en', { numeric: true });

type Operator = ':' | '=' | '!=' | '<' | '<=' | '>' | '>=';
const TERM = /^([\w.@-]+)(!=|<=|>=|[:=<>])(.+)$/;
const OPERATORS: { readonly [operator in Operator]: (order: number, has: boolean) => boolean } = {
  ':': (_, has) => has,
  '=': order => order === 0,
  '!=': order => order !== 0,
  '<': order => order < 0,
  '<=': order => order <= 0,
  '>': order => order > 0,
  '>=': order => order >= 0,
};

export interface RunQuery {
  /** Words that a run's row must contain, in lower case. */
  readonly words: readonly string[];
  readonly terms: readonly { readonly key: string; readonly operator: Operator; readonly value: string }[];
  /** Archived runs only, or all runs; without it archived runs are left out. */
  readonly archived?: 'only' | 'too';
}

/** @param q words and terms such as `group_size>1` or `env:FrozenLake`, separated by spaces */
export function parseRunQuery(q: string): RunQuery {
  const parts = q.split(/\s+/).filter(Boolean);
  const archived = parts.includes('is:archived') ? 'only' : parts.includes('is:any') ? 'too' : undefined;
  const others = parts.filter(part => part !== 'is:archived' && part !== 'is:any');
  const terms = others.flatMap(part => {
    const [, key, operator, value] = TERM.exec(part) ?? [];
    return key === undefined ? [] : [{ key, operator: operator as Operator, value }];
  });
  const words = others.filter(part => !TERM.test(part)).map(part => part.toLowerCase());
  return { words, terms, ...(archived ? { archived } : {}) };
}

/** The settings that a query and an order name. */
export function settingKeys({ terms }: RunQuery, ...others: readonly string[]): string[] {
  return [...terms.map(({ key }) => key), ...others].filter(
    key => key !== '' && !Object.hasOwn(RUN_FIELDS, key),
  );
}

/** The key that a name means: the name itself, or the shortest key that ends with it after a dot. */
export function resolvedKey(keys: ReadonlySet<string>, name: string): string | undefined {
  if (keys.has(name)) return name;
  let best: string | undefined;
  for (const key of keys)
    if (key.endsWith(`.${name}`) && (best === undefined || key.length < best.length)) best = key;
  return best;
}

/** @returns undefined where a run has neither the field nor the setting */
function fieldOf<R extends QueriedRun>(run: R, key: string, setting: SettingOf<R>): SettingValue | undefined {
  return Object.hasOwn(RUN_FIELDS, key) ? RUN_FIELDS[key](run) : setting(run, key);
}

/** Matches runs with all words in their table row and all terms true. */
export function runMatcher<R extends QueriedRun>(
  query: RunQuery,
  setting: SettingOf<R>,
): (run: R) => boolean {
  const { words, terms, archived } = query;
  return run => {
    const isArchived = run.annotations?.archived === true;
    if (archived !== 'too' && isArchived !== (archived === 'only')) return false;
    if (words.length > 0) {
      const text = rowText(run);
      if (!words.every(word => text.includes(word))) return false;
    }
    return terms.every(({ key, operator, value }) => {
      const own = fieldOf(run, key, setting);
      if (own === undefined) return operator === '!=';
      const has = String(own).toLowerCase().includes(value.toLowerCase());
      return OPERATORS[operator](compared(own, value), has);
    });
  };
}

function rowText(row: QueriedRun): string {
  const { id, run, annotations } = row;
  const tags = run.tags.flatMap(({ tag, env_id }) => [tag, env_id]);
  const parts = [id, run.name, outcomeOf(row), row.state, run.advantage, run.model, `seed ${run.seed}`];
  return [...parts, ...run.recipe, ...tags, ...(annotations?.tags ?? []), annotations?.note ?? '']
    .join('\n')
    .toLowerCase();
}

/** Compares a value with a text of a query: negative, zero or positive. */
function compared(own: SettingValue, text: string): number {
  const number = Number(text);
  if (typeof own === 'number' && !Number.isNaN(number)) return own - number;
  return String(own).toLowerCase().localeCompare(text.toLowerCase());
}

/** Orders runs by a field or setting, with `-` in front in descending order; runs without it come last. */
export function runOrder<R extends QueriedRun>(sort: string, setting: SettingOf<R>): (a: R, b: R) => number {
  const key = sort.replace(/^-/, '');
  const sign = sort.startsWith('-') ? -1 : 1;
  return (a, b) => {
    const [x, y] = [fieldOf(a, key, setting), fieldOf(b, key, setting)];
    if (x === undefined || y === undefined) return Number(x === undefined) - Number(y === undefined);
    if (typeof x === 'number' && typeof y === 'number') return sign * (x - y);
    return sign * COLLATOR.compare(String(x), String(y));
  };
}

/** Runs that share the value of a field or setting. */
export interface RunGroup {
  readonly value: SettingValue | undefined;
  readonly runs: number;
  /** Mean, minimum and maximum success of the validated runs; absent where none was validated. */
  readonly success?: { readonly mean: number; readonly low: number; readonly high: number };
  /** Ids of the latest runs, for a comparison. */
  readonly ids: readonly string[];
}

const MAX_GROUPS = 200;
const MAX_IDS = 16;

/** Groups of runs, the largest first. */
export function groupRuns<R extends QueriedRun>(
  runs: readonly R[],
  key: string,
  setting: SettingOf<R>,
): RunGroup[] {
  const groups = Map.groupBy(runs, run => fieldOf(run, key, setting));
  const all = [...groups].sort((a, b) => b[1].length - a[1].length).slice(0, MAX_GROUPS);
  return all.map(([value, members]) => {
    const known = members.flatMap(({ validations }) => validations.at(-1)?.success ?? []);
    const mean = known.reduce((sum, success) => sum + success, 0) / known.length;
    return {
      value,
      runs: members.length,
      ids: members.slice(0, MAX_IDS).map(({ id }) => id),
      ...(known.length > 0 ? { success: { mean, low: Math.min(...known), high: Math.max(...known) } } : {}),
    };
  });
}

/** Names as one parameter of an address. Commas part them; in a name a comma is `%2C` and a percent sign `%25`. */
export function listText(names: readonly string[]): string {
  return names.map(name => name.replaceAll('%', '%25').replaceAll(',', '%2C')).join();
}

/** Names in a parameter of an address; a percent sign before anything else is itself. */
export function listOf(text: string): string[] {
  return text.split(',').map(name => name.replaceAll('%2C', ',').replaceAll('%25', '%'));
}
