import { basename, dirname, extname, resolve } from 'node:path';
import Type, { type Static } from 'typebox';
import { ConfigError, loadConfig } from '../../../shared/config.ts';
import type { Json } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { closed } from '../../../shared/schema/type.ts';
import { isLibraryConfig } from '../../config/load.ts';

const NAME = '^[A-Za-z0-9][A-Za-z0-9._-]*$';

/** Random values by key: drawn from a list, or from a range, evenly or by the logarithm. */
const RandomSearch = closed({
  points: Type.Integer({ minimum: 1 }),
  /** Seeds the draws. */
  seed: Type.Integer({ minimum: 0, default: 0 }),
  space: Type.Record(
    Type.String(),
    Type.Union([
      closed({ choice: Type.Array(Type.Unknown(), { minItems: 1 }) }),
      closed({ uniform: Type.Tuple([Type.Number(), Type.Number()]) }),
      closed({
        log_uniform: Type.Tuple([Type.Number({ exclusiveMinimum: 0 }), Type.Number({ exclusiveMinimum: 0 })]),
      }),
      closed({ integer: Type.Tuple([Type.Integer(), Type.Integer()]) }),
    ]),
    { minProperties: 1 },
  ),
});
type RandomSearch = Static<typeof RandomSearch>;

/** All runs go to the first step; after each round the better share continues, to `factor` times as many steps. */
const Halving = closed({
  /** Iterations of the first round. */
  first_steps: Type.Integer({ minimum: 1 }),
  /** η: one run in this many continues, to this many times the steps. */
  factor: Type.Integer({ minimum: 2, default: 3 }),
});
export type Halving = Static<typeof Halving>;

/** A plan of runs: every variant with every value of the grid and every seed. */
const SweepSettings = closed({
  /** The config of all runs: relative to the sweep's file, or `ragen:NAME`. */
  config: Type.String({ minLength: 1 }),
  /** Name of the folder for the runs; null: the sweep's file name. */
  name: Type.Union([Type.Null(), Type.String({ pattern: NAME })], { default: null }),
  seeds: Type.Array(Type.Integer({ minimum: 0 }), { minItems: 1, default: [0] }),
  /** Settings of all runs, `key=value` each; `{seed}` here or in a variant is replaced by the run's seed. */
  overrides: Type.Array(Type.String(), { default: [] }),
  /** Variants by name, with their settings; empty: a single one without settings. */
  variants: Type.Record(Type.String({ pattern: NAME }), Type.Array(Type.String()), { default: {} }),
  /** Values by key: every combination is a separate variant. */
  grid: Type.Record(Type.String(), Type.Array(Type.Unknown(), { minItems: 1 }), { default: {} }),
  /** Random search: this many points drawn from ranges, each a separate variant. */
  random: Type.Union([Type.Null(), RandomSearch], { default: null }),
  /** Successive halving: runs that fall behind are stopped early; null: all run to their end. */
  halving: Type.Union([Type.Null(), Halving], { default: null }),
  /** Runs at once. */
  parallel: Type.Integer({ minimum: 1, default: 1 }),
  /** The baseline, with which others are compared seed by seed; null: the first variant. */
  baseline: Type.Union([Type.Null(), Type.String({ minLength: 1 })], { default: null }),
});
export type SweepSettings = Static<typeof SweepSettings>;

/** One run of a sweep. */
export interface SweepRun {
  /** Name of its folder in the sweep's folder. */
  readonly name: string;
  /** Name shared by the runs that differ only by their seed. */
  readonly variant: string;
  readonly seed: number;
  /** All overrides of the config, the seed included. */
  readonly overrides: readonly string[];
}

export interface SweepPlan {
  readonly name: string;
  readonly config: string;
  readonly runs: readonly SweepRun[];
  readonly parallel: number;
  readonly halving: Halving | null;
  readonly baseline: string;
}

/**
 * Reads a sweep's file.
 * @throws ConfigError naming its faults
 */
export function readSweep(file: string, overrides: readonly string[]): SweepPlan {
  const settings = loadConfig(file, { schema: SweepSettings });
  const config = isLibraryConfig(settings.config)
    ? settings.config
    : resolve(dirname(resolve(file)), settings.config);
  const runs = sweepRuns({ ...settings, overrides: [...settings.overrides, ...overrides] });
  const { parallel, halving, baseline } = settings;
  const variants = [...new Set(runs.map(({ variant }) => variant))];
  if (baseline !== null && !variants.includes(baseline)) {
    const message = `no variant is named ${baseline}; there are ${variants.join(', ')}`;
    throw new ConfigError([{ key: 'baseline', where: file, message }]);
  }
  const name = settings.name ?? basename(file, extname(file));
  return { name, config, runs, parallel, halving, baseline: baseline ?? variants[0] };
}

/** The runs, seed by seed: after each round every variant has been tried equally often. */
export function sweepRuns({
  seeds,
  overrides,
  variants,
  grid,
  random = null,
}: Pick<SweepSettings, 'seeds' | 'overrides' | 'variants' | 'grid'> &
  Partial<Pick<SweepSettings, 'random'>>): SweepRun[] {
  const named = Object.entries(variants);
  const base = named.length > 0 ? named : [['run', [] as string[]] as const];
  const fixed = combinations(Object.entries(grid) as [string, Json[]][]);
  const drawn = random ? randomPoints(random) : [[]];
  const points = drawn.flatMap(point => fixed.map(other => [...point, ...other]));
  const all = base.flatMap(([name, own]) =>
    points.map(point => ({
      variant: [name, ...point.map(({ label }) => label)].join('-'),
      overrides: [...overrides, ...own, ...point.map(({ override }) => override)],
    })),
  );
  return seeds.flatMap(seed =>
    all.map(one => ({
      name: `${one.variant}-seed-${seed}`,
      variant: one.variant,
      seed,
      overrides: [...one.overrides.map(text => text.replaceAll('{seed}', `${seed}`)), `seed=${seed}`],
    })),
  );
}

interface SweepPoint {
  readonly label: string;
  readonly override: string;
}

function pointOf(key: string, value: Json): SweepPoint {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  const label = `${key.split('.').at(-1)}_${text.replace(/[^A-Za-z0-9._-]+/g, '_')}`;
  return { label, override: `${key}=${text}` };
}

/** Every combination of one value of each key; a single empty one without keys. */
function combinations(grid: readonly (readonly [key: string, values: readonly Json[]])[]): SweepPoint[][] {
  return grid.reduce<SweepPoint[][]>(
    (points, [key, values]) => points.flatMap(point => values.map(value => [...point, pointOf(key, value)])),
    [[]],
  );
}

/** Significant digits of a drawn number. */
const DIGITS = 4;

/** Points of a random search, determined by the seed; more points begin with the same ones. */
function randomPoints({ points, seed, space }: RandomSearch): SweepPoint[][] {
  const rng = Random.fromSeed(seed);
  return Array.from({ length: points }, (_, i) =>
    Object.entries(space).map(([key, range], k) => {
      const { label, override } = pointOf(key, drawnValue(range, rng));
      return { label: k === 0 ? `p${i}-${label}` : label, override };
    }),
  );
}

function drawnValue(range: RandomSearch['space'][string], rng: Random): Json {
  if ('choice' in range) return rng.choice(range.choice as Json[]);
  if ('integer' in range) return range.integer[0] + rng.integer(range.integer[1] - range.integer[0] + 1);
  const [low, high] = 'uniform' in range ? range.uniform : range.log_uniform.map(Math.log);
  const drawn = low + rng.float() * (high - low);
  return Number(('uniform' in range ? drawn : Math.exp(drawn)).toPrecision(DIGITS));
}
