import { basename, dirname, extname, resolve } from 'node:path';
import Type, { type Static } from 'typebox';
import { loadConfig } from '../../shared/config.ts';
import type { Json } from '../../shared/json.ts';

const NAME = '^[A-Za-z0-9][A-Za-z0-9._-]*$';

/** A list of runs: every variant with every value of the grid and every seed. */
export const SweepSettings = Type.Object(
  {
    /** The config of all runs, relative to the sweep's file. */
    config: Type.String({ minLength: 1 }),
    /** Name of the folder that the runs go into; null: the sweep's file name. */
    name: Type.Union([Type.Null(), Type.String({ pattern: NAME })], { default: null }),
    seeds: Type.Array(Type.Integer({ minimum: 0 }), { minItems: 1, default: [0] }),
    /** Settings of all runs, `key=value` each; `{seed}` in one, or in a variant's, stands for the run's seed. */
    overrides: Type.Array(Type.String(), { default: [] }),
    /** Variants by name, with settings of their own; empty: one without any. */
    variants: Type.Record(Type.String({ pattern: NAME }), Type.Array(Type.String()), { default: {} }),
    /** Values by key: every combination is a separate variant. */
    grid: Type.Record(Type.String(), Type.Array(Type.Unknown(), { minItems: 1 }), { default: {} }),
  },
  { additionalProperties: false },
);
export type SweepSettings = Static<typeof SweepSettings>;

/** One run of a sweep. */
export interface SweepRun {
  /** Name of its folder under the sweep's. */
  readonly name: string;
  /** What the runs that differ only by their seed have in common. */
  readonly variant: string;
  readonly seed: number;
  /** Everything that is laid over the config, the seed included. */
  readonly overrides: readonly string[];
}

export interface SweepPlan {
  readonly name: string;
  readonly config: string;
  readonly runs: readonly SweepRun[];
}

/**
 * Reads a sweep's file.
 * @throws ConfigError naming what is wrong in it
 */
export function readSweep(file: string, overrides: readonly string[]): SweepPlan {
  const settings = loadConfig(file, { schema: SweepSettings });
  const config = resolve(dirname(resolve(file)), settings.config);
  const runs = sweepRuns({ ...settings, overrides: [...settings.overrides, ...overrides] });
  return { name: settings.name ?? basename(file, extname(file)), config, runs };
}

/** The runs, seed by seed: after each round every variant has been tried as often as any other. */
export function sweepRuns({
  seeds,
  overrides,
  variants,
  grid,
}: Omit<SweepSettings, 'config' | 'name'>): SweepRun[] {
  const named = Object.entries(variants);
  const base = named.length > 0 ? named : [['run', [] as string[]] as const];
  const points = combinations(Object.entries(grid) as [string, Json[]][]);
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

/** Every combination of one value of each key; a single empty one without keys. */
function combinations(grid: readonly (readonly [key: string, values: readonly Json[]])[]): SweepPoint[][] {
  return grid.reduce<SweepPoint[][]>(
    (points, [key, values]) =>
      points.flatMap(point =>
        values.map(value => {
          const text = typeof value === 'string' ? value : JSON.stringify(value);
          const label = `${key.split('.').at(-1)}_${text.replace(/[^A-Za-z0-9._-]+/g, '_')}`;
          return [...point, { label, override: `${key}=${text}` }];
        }),
      ),
    [[]],
  );
}
