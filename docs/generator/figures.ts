import { readFileSync } from 'node:fs';
import type { AnyEnvironment } from '../../env-server/environments/core/environment.ts';
import { createRegistry } from '../../env-server/environments/registry.ts';
import type { JsonObject } from '../../shared/json.ts';
import { animation, animationRow } from './animation.ts';
import { shortName } from './environment-page.ts';
import { type PlayedFrames, playFrames } from './episode-frames.ts';
import { curvePlot, type PlotCurve, type RegimePath, regimePlot } from './plot.ts';

const DATA = new URL('../results/data/', import.meta.url);
const MAX_STEPS = 16;
/** Choice of an episode and its presentation. */
interface Choice {
  readonly seed: number;
  readonly config?: JsonObject;
  /** Height that its board needs, in pixels, where the board is made of markup. */
  readonly boardHeight?: number;
}
/** Episodes that show something; seed 0 and the default configuration for others. */
const EPISODES: { readonly [id: string]: Choice } = {
  'FrozenLake-v0': { seed: 5 },
  'Sokoban-v0': { seed: 7, config: { preset: 'simple', min_solution: 8 } },
  'RubiksCube-v0': { seed: 2 },
  'TextHousehold-v0': { seed: 0, boardHeight: 440 },
  'Bandit-v0': { seed: 0, boardHeight: 215 },
  'Countdown-v0': { seed: 0, boardHeight: 160 },
  'DeepCoder-v0': { seed: 0, boardHeight: 240 },
  'Lean-v1': { seed: 0, boardHeight: 300 },
  'Lean-v0': { seed: 0, boardHeight: 300 },
  'MathWordProblems-v0': { seed: 0, boardHeight: 150 },
  'SearchQA-v0': { seed: 0, boardHeight: 110 },
  'StaticQA-v0': { seed: 0, boardHeight: 150 },
  'TextShop-v0': { seed: 0, boardHeight: 420 },
};
const OVERVIEW = ['FrozenLake-v0', 'Sokoban-v0', 'Sudoku-v0'];
/** Borders of the regimes in the picture: about where its runs found theirs. */
const REGIME_BORDERS = { entropy: 0.65, mi_share: 0.12 };

interface Data<Row> {
  readonly title: string;
  readonly rows: readonly Row[];
}

/** A run on an environment of one's own: success from 0 to 1 by iteration. */
interface OwnRun {
  readonly env_id: string;
  readonly seed: number;
  readonly points: readonly { readonly step: number; readonly success: number }[];
}

const ownCurve = ({ env_id, seed, points }: OwnRun): PlotCurve => ({
  name: `${env_id.replace(/^me\/|-v0$/g, '')}, seed ${seed}`,
  points: points.map(({ step, success }) => [step, 100 * success]),
});

/** Figures that need no environment: path from the repository's root → SVG. */
export function staticFigures(): ReadonlyMap<string, string> {
  const regimes = read<Data<RegimePath>>('regimes');
  const own = read<Data<OwnRun>>('own-environments');
  return new Map([
    ['docs/pictures/regimes.svg', regimePlot(regimes.title, regimes.rows, REGIME_BORDERS)],
    ['docs/pictures/own-environments.svg', curvePlot(own.title, own.rows.map(ownCurve))],
  ]);
}

/** Path of an environment's animation, from the repository's root. */
export function animationPath(environment: AnyEnvironment): string {
  return `docs/pictures/environments/${shortName(environment)}.svg`;
}

/** An animation for each environment, and the overview of some: path from the repository's root → SVG. */
export async function animations(
  environments: readonly AnyEnvironment[],
): Promise<ReadonlyMap<string, string>> {
  const figures = new Map<string, string>();
  for (const environment of environments) {
    figures.set(animationPath(environment), animation(environment.spec.title, await episodeOf(environment)));
  }
  const registry = createRegistry();
  const chosen: [string, PlayedFrames][] = [];
  for (const id of OVERVIEW) chosen.push([registry.get(id).spec.title, await episodeOf(registry.get(id))]);
  return figures.set(
    'docs/pictures/overview.svg',
    animationRow('Reference policies play three environments', chosen),
  );
}

/** The episode by which an environment is shown. */
export async function episodeOf(environment: AnyEnvironment): Promise<PlayedFrames> {
  const { seed, config = {}, boardHeight } = EPISODES[environment.spec.id] ?? { seed: 0 };
  const played = await playFrames(environment, { seed, config, mostSteps: MAX_STEPS });
  return { ...played, boardHeight };
}

function read<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`${name}.json`, DATA), 'utf8')) as T;
}
