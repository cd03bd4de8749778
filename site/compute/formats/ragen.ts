import { episodeOf } from '../episode-record.ts';
import { FormatError, stepOf, type TrajectoryFormat } from './format.ts';

/**
 * ragen's own trajectories, e.g. from another person's run folder. Without the run's `tokens.jsonl` tokens have no
 * texts.
 */
export const RAGEN: TrajectoryFormat = {
  name: 'ragen',
  fields: 'turns, samples',
  recognizes: row => Array.isArray(row.turns) && Array.isArray(row.samples),
  read(row) {
    const episode = episodeOf(row);
    if (!episode) throw new FormatError('`turns` is a list');
    return { step: stepOf(row), group: `${episode.tag} ${episode.group_id} ${episode.seed}`, episode };
  },
};
