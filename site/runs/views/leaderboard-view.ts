import { useEffect, useState } from 'preact/hooks';
import { html } from '../../components/html.ts';
import { withUnit } from '../../components/with-unit.ts';
import type { LeaderboardRow } from '../../server/reader/leaderboard.ts';
import type { SignedReply } from '../../server/reader/signed-results.ts';
import { formatAddress } from '../address.ts';
import { useData, useSource } from '../data/hooks.ts';
import { duration, percent, short } from '../format.ts';
import { intervalText, passText, sourceOf } from './leaderboard-parts.ts';
import { PageTitle, Status } from './parts.ts';
import { RefusedResults, SignedTable, signedRows } from './signed-results.ts';

/** Milliseconds between two requests for results that are being replayed. */
const POLL_MS = 2000;

/**
 * Every result by environment and preset, best first. Where a group signs its results, it lists replayed results and
 * published figures, and everything else separately.
 */
export function LeaderboardView() {
  const [tries, setTries] = useState(0);
  const { value: rows, error } = useData<readonly LeaderboardRow[]>('leaderboard');
  const { value: signed, error: signedError } = useData<SignedReply>('signed-results', { tries });
  const isWaiting = signed?.runs.some(({ state }) => state === 'waiting');
  useEffect(() => {
    if (!isWaiting) return;
    const timer = setTimeout(() => setTries(tries + 1), POLL_MS);
    return () => clearTimeout(timer);
  }, [signed, isWaiting]);
  const isLoading = !(rows && signed) && !error && !signedError;
  return html`<div class="stack">
    <${PageTitle} view="leaderboard" />
    <${Status} error=${error ?? signedError} loading=${isLoading} />
    ${rows && signed && (signed.group ? html`<${Group} rows=${rows} signed=${signed} />` : html`<${Own} rows=${rows} />`)}
  </div>`;
}

function Own({ rows }: { readonly rows: readonly LeaderboardRow[] }) {
  return html`<p class="hint">The last validation of each run, every evaluation of a run, and published figures. Evaluate a run with <code>${useSource().site.trainer} evaluate runs/NAME --policy checkpoint --policy random</code>.</p>
    ${rows.length === 0 && html`<p class="panel">No results yet.</p>`}
    <${Tables} rows=${rows} />`;
}

function Group({ rows, signed }: { readonly rows: readonly LeaderboardRow[]; readonly signed: SignedReply }) {
  const listed = [...signedRows(signed), ...rows.filter(({ run }) => run === undefined)];
  const unsigned = rows.filter(({ run }) => run !== undefined);
  const tables = byTask(listed);
  return html`<p class="hint">Results with a signature that holds and episodes that came out the same when this host played them again, and published figures. Sign yours with <code>${useSource().site.trainer} evaluate runs/NAME --sign "YOUR NAME"</code>. A signature says who answers for a result; a replay shows that its actions earned it, not who chose them.</p>
    ${tables.size === 0 && html`<p class="panel">No verified results yet.</p>`}
    ${[...tables].map(([name, members]) => html`<${SignedTable} key=${name} name=${name} rows=${members} />`)}
    <${RefusedResults} runs=${signed.runs} />
    ${unsigned.length > 0 && html`<details class="stack"><summary>${unsigned.length} ${unsigned.length === 1 ? 'result' : 'results'} without a signature</summary><${Tables} rows=${unsigned} /></details>`}`;
}

/** Rows by environment and preset, in the order of their names, best first. */
function byTask<T extends LeaderboardRow>(rows: readonly T[]): Map<string, T[]> {
  const tables = new Map<string, T[]>();
  for (const row of rows) {
    const key = `${row.env_id}${row.preset === '' ? '' : `, ${row.preset}`}`;
    tables.set(key, [...(tables.get(key) ?? []), row]);
  }
  for (const members of tables.values()) members.sort((a, b) => b.success - a.success);
  return new Map([...tables].sort(([a], [b]) => a.localeCompare(b)));
}

function Tables({ rows }: { readonly rows: readonly LeaderboardRow[] }) {
  return [...byTask(rows)].map(
    ([name, members]) => html`<section class="panel" key=${name}><h2>${name}</h2>
      <div class="scroll-x" tabindex="0" role="region" aria-label=${name}><table>
        <thead><tr><th scope="col">Policy</th><th scope="col" class="number">Size</th><th scope="col" class="number">Success</th><th scope="col">${withUnit(95, '%')} interval</th>
          <th scope="col">pass@k</th><th scope="col" class="number">Steps</th><th scope="col" class="number">Tokens</th><th scope="col" class="number">Time</th><th scope="col">Date</th><th scope="col" style="min-width: 13rem">Command or source</th></tr></thead>
        <tbody>${members.map((row, i) => html`<${Row} key=${i} row=${row} />`)}</tbody>
      </table></div></section>`,
  );
}

function Row({ row }: { readonly row: LeaderboardRow }) {
  const number = (value: number | null, format: (value: number) => string) =>
    value === null ? '–' : format(value);
  return html`<tr>
    <td class="cut" style="max-width: min(18rem, 35vw)">${row.run === undefined ? row.policy : html`<a href=${formatAddress({ view: 'overview', run: row.run })}>${row.policy}</a>`}</td>
    <td class="number">${number(row.size, short)}</td>
    <td class="number"><b class="large">${percent(row.success)}</b></td>
    <td class="cut">${intervalText(row)}</td>
    <td class="cut">${passText(row)}</td>
    <td class="number">${number(row.steps, short)}</td><td class="number">${number(row.tokens, short)}</td><td class="number">${number(row.seconds, duration)}</td>
    <td class="cut">${row.date.slice(0, 10)}</td>
    <td>${sourceOf(row)}</td>
  </tr>`;
}
