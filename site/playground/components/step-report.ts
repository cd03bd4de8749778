import type { Episode } from '../play/episode.ts';
import { formatNumber, formatValue } from './format.ts';
import { remark } from './transcript.ts';

/** Characters read out of an observation. */
const MAX_READING_LENGTH = 300;

/** The last step of an episode in words, for those who hear the page; with the observation where actions are written, too. */
export function stepReport({ environment, moves, totalReward }: Episode): string {
  const last = moves.at(-1);
  if (!last) return '';
  const { action, observation, reward } = last;
  const isProse = environment.actions === undefined && typeof observation === 'string';
  const words = [
    `Step ${moves.length}, ${formatValue(action)}: reward ${formatNumber(reward)}, return ${formatNumber(totalReward)}.`,
    remark(last),
    isProse ? observation.slice(0, MAX_READING_LENGTH) : '',
  ];
  return words.filter(Boolean).join(' ');
}
