import { shortened } from '../components/text.ts';
import type { Environment, PlayedStep } from './wire.ts';

const SIGNIFICANT = 6;

/** A number for reading: six significant digits, a real minus sign. */
export function formatNumber(value: number): string {
  return String(Number(value.toPrecision(SIGNIFICANT))).replace('-', '−');
}

/** A number as a figure: two decimals, or three significant digits where that is more. */
export const briefNumber = (value: number): string =>
  formatNumber(Number(Math.abs(value) < 1 ? value.toPrecision(3) : value.toFixed(2)));

/** An action or observation for reading, cut at a limit: text unchanged, everything else as JSON. */
export function formatValue(value: unknown, indent?: number, length?: number): string {
  return shortened(typeof value === 'string' ? value : (JSON.stringify(value, null, indent) ?? ''), length);
}

/** Status of an episode. */
export interface EpisodeStatus {
  readonly text: string;
  readonly tone: 'plain' | 'good' | 'bad' | 'warn';
}

/** In a word, the status of an episode after the last step. */
export function episodeStatus(last: {
  readonly terminated?: boolean;
  readonly truncated?: boolean;
  readonly info: { readonly success?: boolean };
}): EpisodeStatus {
  if (last.terminated)
    return last.info.success ? { text: 'solved', tone: 'good' } : { text: 'ended', tone: 'bad' };
  if (last.truncated) return { text: 'cut short', tone: 'warn' };
  return { text: 'in progress', tone: 'plain' };
}

/** Remark on an invalid action, with its `reason` where the environment names one, or an ineffective one; empty for others. */
export function actionRemark(info: {
  readonly action_is_valid?: boolean;
  readonly action_is_effective?: boolean;
  readonly reason?: unknown;
}): string {
  const { action_is_valid, reason } = info;
  if (action_is_valid === false)
    return typeof reason === 'string'
      ? `not valid: ${reason.replaceAll('_', ' ').slice(0, 60)}`
      : 'not valid';
  return info.action_is_effective === false ? 'no effect' : '';
}

/** Remark on a step next to its reward; empty for an ordinary step. */
export function remark(move: PlayedStep): string {
  return move.terminated || move.truncated ? episodeStatus(move).text : actionRemark(move.info);
}

/** Characters of an observation that are announced. */
const MAX_READING_LENGTH = 300;

/** The last step of an episode in words for screen readers; with the observation where actions are written. */
export function stepReport(
  { actions }: Pick<Environment, 'actions'>,
  moves: readonly PlayedStep[],
  totalReward: number,
): string {
  const last = moves.at(-1);
  if (!last) return '';
  const { action, observation, reward } = last;
  const isProse = actions === undefined && typeof observation === 'string';
  const words = [
    `Step ${moves.length}, ${formatValue(action)}: reward ${formatNumber(reward)}, return ${formatNumber(totalReward)}.`,
    remark(last),
    isProse ? observation.slice(0, MAX_READING_LENGTH) : '',
  ];
  return words.filter(Boolean).join(' ');
}

export type NamedActions = Pick<Environment, 'actions' | 'action_space'>;

/** An action for reading: by name, if it was sent as a number and the environment has names. */
export function namedAction<T>({ actions, action_space }: NamedActions, action: T): T | string {
  const { start = 0 } = action_space.gymnasium as { readonly start?: number };
  return (typeof action === 'number' ? actions?.[action - start] : undefined) ?? action;
}
