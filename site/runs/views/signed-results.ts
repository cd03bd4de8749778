import { html } from '../../components/html.ts';
import { withUnit } from '../../components/with-unit.ts';
import { presetText } from '../../compute/preset-text.ts';
import type { LeaderboardRow } from '../../server/reader/leaderboard.ts';
import type { SignedReply, SignedRun } from '../../server/reader/signed-results.ts';
import { formatAddress } from '../address.ts';
import { percent } from '../format.ts';
import { intervalText, passText, sourceOf } from './leaderboard-parts.ts';

/** Longest title of a table: configs come from others. */
const MAX_TITLE = 200;

/** A row with everything that a signature covers. */
export interface SignedRow extends LeaderboardRow {
  readonly author?: { readonly name: string; readonly fingerprint: string };
  readonly levels?: string;
  readonly limits?: string;
  readonly replayed?: string;
}

/** Rows of the verified results. */
export function signedRows({ runs }: SignedReply): SignedRow[] {
  return runs.flatMap(({ run, author, about, results = [] }) =>
    results.map((result): SignedRow => {
      const { environment, seeds, step, policy, mode, pass_at } = result;
      const episodes = seeds.levels * seeds.attempts;
      const name = policy === 'checkpoint' ? `${run}, ${policy}` : policy;
      return {
        env_id: environment.env_id,
        preset: presetText(environment.config).slice(0, MAX_TITLE),
        policy: `${name}${step === undefined ? '' : `, step ${step}`} (${mode})`,
        size: null,
        success: result.success,
        low: result.success_low,
        high: result.success_high,
        pass_at: pass_at ?? null,
        episodes,
        steps: step ?? null,
        tokens: null,
        seconds: null,
        date: about!.date,
        command: about!.command,
        source: '',
        run,
        author,
        levels: `${seeds.levels} from ${seeds.first}${seeds.attempts > 1 ? ` × ${seeds.attempts}` : ''}`,
        limits: `${environment.max_turns} turns, ${environment.max_actions_per_trajectory} actions`,
        replayed: `${result.replayed} of ${episodes}`,
      };
    }),
  );
}

export function SignedTable({ name, rows }: { readonly name: string; readonly rows: readonly SignedRow[] }) {
  return html`<section class="panel"><h2>${name}</h2>
    <div class="scroll-x" tabindex="0" role="region" aria-label=${name}><table>
      <thead><tr><th scope="col">Policy</th><th scope="col">Author</th><th scope="col" class="number">Success</th><th scope="col">${withUnit(95, '%')} interval</th>
        <th scope="col">pass@k</th><th scope="col">Levels, by seed</th><th scope="col">Limits</th><th scope="col" class="number">Replayed</th><th scope="col">Date</th><th scope="col" style="min-width: 13rem">Command or source</th></tr></thead>
      <tbody>${rows.map((row, i) => html`<${Row} key=${i} row=${row} />`)}</tbody>
    </table></div></section>`;
}

function Row({ row }: { readonly row: SignedRow }) {
  const { author, levels = '–', limits = '–', replayed = 'published' } = row;
  return html`<tr>
    <td>${row.run === undefined ? row.policy : html`<a href=${formatAddress({ view: 'overview', run: row.run })}>${row.policy}</a>`}</td>
    <td>${author ? html`<span title=${author.fingerprint}>${author.name}</span>` : '–'}</td>
    <td class="number"><b class="large">${percent(row.success)}</b></td>
    <td class="cut">${intervalText(row)}</td>
    <td class="cut">${passText(row)}</td>
    <td>${levels}</td>
    <td>${limits}</td>
    <td class="number">${replayed}</td>
    <td class="cut">${row.date.slice(0, 10)}</td>
    <td>${sourceOf(row)}</td>
  </tr>`;
}

/** Runs with results that are not listed, and the reasons. */
export function RefusedResults({ runs }: { readonly runs: readonly SignedRun[] }) {
  const others = runs.filter(({ state }) => state !== 'verified');
  if (others.length === 0) return null;
  return html`<section class="panel"><h2>Not listed</h2>
    <div class="scroll-x" tabindex="0" role="region" aria-label="Not listed"><table>
      <thead><tr><th scope="col">Run</th><th scope="col">Author</th><th scope="col">Why</th></tr></thead>
      <tbody>${others.map(
        ({ run, author, state, reason }) => html`<tr key=${run}>
          <td><a href=${formatAddress({ view: 'overview', run })}>${run}</a></td>
          <td>${author ? html`${author.name} <code>${author.fingerprint}</code>` : '–'}</td>
          <td>${state === 'waiting' ? 'its episodes are being played again' : reason}</td>
        </tr>`,
      )}</tbody>
    </table></div></section>`;
}
