import { html } from '../../components/html.ts';
import type { LeaderboardRow } from '../../server/reader/leaderboard.ts';
import { percent } from '../format.ts';

export const intervalText = ({ low, high }: LeaderboardRow): string =>
  low === null || high === null ? '–' : `${percent(low)} to ${percent(high)}`;

export const passText = ({ pass_at }: LeaderboardRow): string =>
  pass_at === null
    ? '–'
    : Object.entries(pass_at)
        .map(([k, share]) => `${k}: ${percent(share)}`)
        .join(', ');

/** Longer commands are folded, so that a row has one line. */
const MAX_COMMAND = 30;

export const sourceOf = ({ source, command }: LeaderboardRow) =>
  /^https?:\/\//.test(source)
    ? html`<a href=${source} rel="noreferrer">${source}</a>`
    : source ||
      (command.length > MAX_COMMAND
        ? html`<details><summary>command</summary><code>${command}</code></details>`
        : html`<code style="white-space: nowrap">${command}</code>`);
