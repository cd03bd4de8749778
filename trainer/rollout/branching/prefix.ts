import { Random } from '../../../shared/random.ts';
import type { Episode, PlayedTurn, PrefixKind } from '../episode.ts';
import { byLearnability, type ReplayedLevel } from '../levels.ts';
import { mixSeed, PURPOSE } from '../seeds.ts';

/** Result of a group, by the share of its episodes that succeeded. */
export type GroupClass = 'all_fail' | 'too_hard' | 'balanced' | 'too_easy' | 'all_pass';

/** Bounds of a pass rate that leaves something to learn. */
export interface PassBounds {
  readonly low: number;
  readonly high: number;
}

/** Source: Rollout Pass-Rate Control (arXiv 2605.05112). */
export function classOf(successes: number, size: number, { low, high }: PassBounds): GroupClass {
  if (successes === 0) return 'all_fail';
  if (successes === size) return 'all_pass';
  const rate = successes / size;
  return rate < low ? 'too_hard' : rate > high ? 'too_easy' : 'balanced';
}

/** The ratio of a kind of prefix: the share of turns that a head start leaves, or that a handicap takes over. */
export interface PrefixRatio {
  readonly ratio: number;
  /** Most turns of the ratio; null: no limit. */
  readonly cap: number | null;
}

/**
 * Number of turns taken over from an episode: a head start leaves the last ones of a success, a handicap begins with
 * the first ones of a failure.
 * @returns 0 where no prefix can be cut
 */
export function prefixTurns(kind: PrefixKind, turns: number, { ratio, cap }: PrefixRatio): number {
  const part = Math.min(Math.trunc(turns * ratio), cap ?? Number.POSITIVE_INFINITY);
  const taken = kind === 'head_start' ? turns - Math.max(part, 1) : part;
  return taken > 0 && taken < turns ? taken : 0;
}

/** Settings of the controller of a ratio. */
export interface ControllerSettings {
  readonly target: number;
  /** Weight of an iteration in the moving average. */
  readonly alpha: number;
  readonly deadzone: number;
  readonly step: number;
  /** Iterations without a change after a change. */
  readonly cooldown: number;
  readonly least: number;
  readonly most: number;
}

/** State of the controller of one kind under one tag: plain data. */
export interface ControllerState {
  readonly ema: number;
  readonly ratio: number;
  readonly wait: number;
}

/**
 * The controller after an iteration. A larger ratio is harder for both kinds, so it rises while too many continuations
 * succeed.
 * @param rate mean pass rate of the iteration's prefixed groups of the kind; undefined where there were none
 */
export function controlled(
  { ema, ratio, wait }: ControllerState,
  rate: number | undefined,
  { target, alpha, deadzone, step, cooldown, least, most }: ControllerSettings,
): ControllerState {
  const mean = rate === undefined ? ema : (1 - alpha) * ema + alpha * rate;
  if (wait > 0) return { ema: mean, ratio, wait: wait - 1 };
  const change = mean > target + deadzone ? step : mean < target - deadzone ? -step : 0;
  if (rate === undefined || change === 0) return { ema: mean, ratio, wait: 0 };
  return { ema: mean, ratio: Math.min(most, Math.max(least, ratio + change)), wait: cooldown };
}

/** An episode that later ones may begin with, with the attempts and successes of its group: plain data, kept in checkpoints. */
export interface KeptPrefix extends ReplayedLevel {
  readonly kind: PrefixKind;
  readonly dynamicsSeed?: number;
  /** Number of turns of the whole episode, and its first turns as played. */
  readonly turns: number;
  readonly played: readonly PlayedTurn[];
}

/** The first turns of an episode as another one takes them over. */
export function playedTurns(episode: Episode, count: number): PlayedTurn[] {
  return episode.turns.slice(0, count).map((turn, i) => {
    const { structured: _picture, ...kept } = turn;
    const sample = (episode.samples ?? [episode])[turn.sample ?? 0];
    return {
      turn: kept,
      sent: turn.sent ?? turn.actions,
      tokenIds: Array.from(sample.tokenIds.subarray(...turn.tokens)),
      after: episode.turns[i + 1].state,
    };
  });
}

export interface PrefixPoolSettings {
  readonly schedule: 'adaptive' | 'fixed' | 'reverse';
  readonly share: number;
  readonly low: number;
  readonly high: number;
  readonly directions: 'both' | PrefixKind;
  readonly remaining: PrefixRatio;
  readonly taken: PrefixRatio;
  readonly maxAge: number;
  readonly capacity: number;
  readonly controller: ControllerSettings;
  /** Iterations over which `reverse` moves backwards. */
  readonly reverseOver: number;
}

/** Memory of prefix sampling: plain data, kept in checkpoints. */
export interface PrefixState {
  readonly pool: readonly KeptPrefix[];
  readonly controllers: { readonly [kindAndTag: string]: ControllerState };
}

export const NO_PREFIXES: PrefixState = { pool: [], controllers: {} };

const KINDS: readonly PrefixKind[] = ['head_start', 'handicap'];
const FIRST_EMA = 0.5;

/**
 * Takes the kept episodes that groups of an iteration continue: the most promising ones that are not too old, by p(1 −
 * p) of their group's Beta posterior. Taken ones are removed.
 * @param groups of the iteration, prefixed ones included
 */
export function takePrefixes(
  { pool, controllers }: PrefixState,
  { share, maxAge }: PrefixPoolSettings,
  { step, groups }: { readonly step: number; readonly groups: number },
): { readonly taken: readonly KeptPrefix[]; readonly left: PrefixState; readonly old: number } {
  const young = pool.filter(kept => step - kept.step <= maxAge);
  const most = Math.max(0, Math.min(Math.floor(share * groups), groups - 1));
  const taken = young.toSorted(byLearnability).slice(0, most);
  const left = { pool: young.filter(kept => !taken.includes(kept)), controllers };
  return { taken, left, old: pool.length - young.length };
}

/**
 * The memory after an iteration: controllers updated by the results of its prefixed groups, and one episode kept of
 * each other group that is too hard or too easy.
 * @param seed of the choice of episodes
 */
export function learnPrefixes(
  before: PrefixState,
  groups: readonly (readonly Episode[])[],
  settings: PrefixPoolSettings,
  { step, seed }: { readonly step: number; readonly seed: number },
): { readonly state: PrefixState; readonly metrics: Record<string, number> } {
  const prefixed = groups.filter(([first]) => first.prefix);
  const plain = groups.filter(([first]) => !first.prefix);
  const metrics: Record<string, number> = { 'prefix/groups': prefixed.length, 'prefix/dropped_short': 0 };
  const controllers = { ...before.controllers };
  for (const kind of KINDS) {
    const own = prefixed.filter(([first]) => first.prefix!.kind === kind);
    for (const tag of new Set(groups.map(([first]) => first.tag))) {
      const rates = own.filter(([first]) => first.tag === tag).map(passRate);
      const known = controllers[`${kind} ${tag}`] ?? {
        ema: FIRST_EMA,
        ratio: (kind === 'head_start' ? settings.remaining : settings.taken).ratio,
        wait: 0,
      };
      const moved = controlled(known, rates.length > 0 ? meanOf(rates) : undefined, settings.controller);
      controllers[`${kind} ${tag}`] =
        settings.schedule === 'adaptive' ? moved : { ...moved, ratio: known.ratio };
    }
    Object.assign(metrics, kindMetrics(kind, own, controllers));
  }
  const counts: Record<GroupClass, number> = {
    all_fail: 0,
    too_hard: 0,
    balanced: 0,
    too_easy: 0,
    all_pass: 0,
  };
  const kept: KeptPrefix[] = [];
  for (const group of plain) {
    const successes = group.filter(({ success }) => success).length;
    const kindOfGroup = classOf(successes, group.length, settings);
    counts[kindOfGroup]++;
    const kind = kindFor(kindOfGroup, settings);
    if (!kind) continue;
    const candidates = group.filter(({ success }) => success === (kind === 'head_start'));
    const { groupId, tag } = group[0];
    const rng = Random.fromSeed(mixSeed(seed, PURPOSE.prefixChoice, step, groupId));
    const chosen = candidates[rng.integer(candidates.length)];
    const ratio = ratioFor(kind, controllers[`${kind} ${tag}`], settings, step);
    const turns = prefixTurns(kind, chosen.turns.length, ratio);
    if (turns === 0) {
      metrics['prefix/dropped_short']++;
      continue;
    }
    kept.push({
      kind,
      tag,
      seed: chosen.seed,
      ...(chosen.dynamicsSeed === undefined ? {} : { dynamicsSeed: chosen.dynamicsSeed }),
      step,
      attempts: group.length,
      successes,
      turns: chosen.turns.length,
      played: playedTurns(chosen, turns),
    });
  }
  for (const [name, count] of Object.entries(counts)) metrics[`prefix/class/${name}`] = count;
  const pool = [...before.pool, ...kept].sort(byLearnability).slice(0, settings.capacity);
  metrics['prefix/pool'] = pool.length;
  return { state: { pool, controllers }, metrics };
}

/** The kind of prefix that a group supplies; `reverse` takes any success that is not certain. */
function kindFor(group: GroupClass, { schedule, directions }: PrefixPoolSettings): PrefixKind | undefined {
  if (schedule === 'reverse') return group === 'too_hard' || group === 'balanced' ? 'head_start' : undefined;
  const kind = group === 'too_hard' ? 'head_start' : group === 'too_easy' ? 'handicap' : undefined;
  return kind && (directions === 'both' || directions === kind) ? kind : undefined;
}

function ratioFor(
  kind: PrefixKind,
  controller: ControllerState,
  { schedule, remaining, taken, controller: { least, most }, reverseOver }: PrefixPoolSettings,
  step: number,
): PrefixRatio {
  const { cap } = kind === 'head_start' ? remaining : taken;
  if (schedule !== 'reverse') return { ratio: controller.ratio, cap };
  return { ratio: least + (most - least) * Math.min(1, step / reverseOver), cap };
}

function kindMetrics(
  kind: PrefixKind,
  groups: readonly (readonly Episode[])[],
  controllers: PrefixState['controllers'],
): Record<string, number> {
  const own = Object.entries(controllers).filter(([name]) => name.startsWith(`${kind} `));
  const states = own.map(([, state]) => state);
  return {
    [`prefix/${kind}/ema`]: meanOf(states.map(({ ema }) => ema)),
    [`prefix/${kind}/ratio`]: meanOf(states.map(({ ratio }) => ratio)),
    ...(groups.length === 0
      ? {}
      : {
          [`prefix/${kind}/pass_rate`]: meanOf(groups.map(passRate)),
          [`prefix/${kind}/turns_mean`]: meanOf(groups.map(([{ prefix }]) => prefix!.turns)),
          [`prefix/${kind}/share_of_turns`]: meanOf(
            groups.flat().map(({ prefix, turns }) => prefix!.turns / turns.length),
          ),
        }),
  };
}

const passRate = (group: readonly Episode[]) => group.filter(({ success }) => success).length / group.length;

function meanOf(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}
