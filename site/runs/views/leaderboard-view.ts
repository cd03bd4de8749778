import { html } from '../../components/html.ts';
import { withUnit } from '../../components/with-unit.ts';
import type { LeaderboardRow } from '../../server/reader/leaderboard.ts';
import { formatAddress } from '../address.ts';
import { useData, useSource } from '../data/hooks.ts';
import { duration, percent, short } from '../format.ts';
import { PageTitle, Status } from './parts.ts';

/** Every result by environment and preset, best first. */
export function LeaderboardView() {
  const { value: rows, error } = useData<readonly LeaderboardRow[]>('leaderboard');
  const tables = new Map<string, LeaderboardRow[]>();
  for (const row of rows ?? []) {
    const key = `${row.env_id}${row.preset === '' ? '' : `, ${row.preset}`}`;
    tables.set(key, [...(tables.get(key) ?? []), row]);
  }
  return html`<div class="stack roomy">
    <${PageTitle} view="leaderboard" />
    <p class="hint">The last validation of each run, every evaluation of a run, and published figures. Evaluate a run with <code>${useSource().site.trainer} evaluate runs/NAME --policy checkpoint --policy random</code>.</p>
    <${Status} error=${error} loading=${!rows && !error} />
    ${rows?.length === 0 && html`<p class="panel">No results yet.</p>`}
    ${[...tables].map(
      ([name, members]) => html`<section class="panel" key=${name}><h2>${name}</h2>
      <div class="scroll-x" tabindex="0" role="region" aria-label=${name}><table>
        <thead><tr><th scope="col">Policy</th><th scope="col" class="number">Size</th><th scope="col" class="number">Success</th><th scope="col">${withUnit(95, '%')} interval</th>
          <th scope="col">pass@k</th><th scope="col" class="number">Steps</th><th scope="col" class="number">Tokens</th><th scope="col" class="number">Time</th><th scope="col">Date</th><th scope="col">Command or source</th></tr></thead>
        <tbody>${members.map((row, i) => html`<${Row} key=${i} row=${row} />`)}</tbody>
      </table></div></section>`,
    )}
  </div>`;
}

function Row({ row }: { readonly row: LeaderboardRow }) {
  const number = (value: number | null, format: (value: number) => string) =>
    value === null ? '–' : format(value);
  const passed =
    row.pass_at === null
      ? '–'
      : Object.entries(row.pass_at)
          .map(([k, share]) => `${k}: ${percent(share)}`)
          .join(', ');
  return html`<tr>
    <td>${row.run === undefined ? row.policy : html`<a href=${formatAddress({ view: 'overview', run: row.run })}>${row.policy}</a>`}</td>
    <td class="number">${number(row.size, short)}</td>
    <td class="number"><b class="large">${percent(row.success)}</b></td>
    <td class="cut">${row.low === null || row.high === null ? '–' : `${percent(row.low)} to ${percent(row.high)}`}</td>
    <td>${passed}</td>
    <td class="number">${number(row.steps, short)}</td><td class="number">${number(row.tokens, short)}</td><td class="number">${number(row.seconds, duration)}</td>
    <td class="cut">${row.date.slice(0, 10)}</td>
    <td>${/^https?:\/\//.test(row.source) ? html`<a href=${row.source} rel="noreferrer">${row.source}</a>` : row.source || html`<code>${row.command}</code>`}</td>
  </tr>`;
}
