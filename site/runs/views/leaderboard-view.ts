import { useEffect, useState } from 'preact/hooks';
import { counted } from '../../../shared/text.ts';
import { html } from '../../components/html.ts';
import { withUnit } from '../../components/text.ts';
import { presetText } from '../../compute/settings-text.ts';
import type { LeaderboardRow } from '../../server/reader/leaderboard.ts';
import type { SignedReply, SignedRun } from '../../server/reader/signed-results.ts';
import { formatAddress } from '../address.ts';
import { useData, useSource } from '../data/hooks.ts';
import { duration, percent, short } from '../format.ts';
import { PageTitle, Status } from './parts.ts';

/** Milliseconds between two requests for results that are being replayed. */
const POLL_MS = 2000;
/** Longest title of a table: configs come from others. */
const MAX_TITLE = 200;
/** Longer commands are folded, so that a row has one line. */
const MAX_COMMAND = 30;

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
    <${Tables} rows=${rows} columns=${OWN_COLUMNS} />`;
}

function Group({ rows, signed }: { readonly rows: readonly LeaderboardRow[]; readonly signed: SignedReply }) {
  const listed = [...signedRows(signed), ...rows.filter(({ run }) => run === undefined)];
  const unsigned = rows.filter(({ run }) => run !== undefined);
  return html`<p class="hint">Results with a signature that holds and episodes that came out the same when this host played them again, and published figures. Sign yours with <code>${useSource().site.trainer} evaluate runs/NAME --sign "YOUR NAME"</code>. A signature says who answers for a result; a replay shows that its actions earned it, not who chose them.</p>
    ${listed.length === 0 && html`<p class="panel">No verified results yet.</p>`}
    <${Tables} rows=${listed} columns=${SIGNED_COLUMNS} />
    <${RefusedResults} runs=${signed.runs} />
    ${unsigned.length > 0 && html`<details class="stack"><summary>${counted(unsigned.length, 'result')} without a signature</summary><${Tables} rows=${unsigned} columns=${OWN_COLUMNS} /></details>`}`;
}

/** A row with everything that a signature covers. */
interface SignedRow extends LeaderboardRow {
  readonly author?: { readonly name: string; readonly fingerprint: string };
  readonly levels?: string;
  readonly limits?: string;
  readonly replayed?: string;
}

/** Rows of the verified results. */
function signedRows({ runs }: SignedReply): SignedRow[] {
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

/** Head, content and attributes of a column. */
type Column = readonly [
  head: string,
  content: (row: SignedRow) => unknown,
  attributes?: { readonly class?: 'number' | 'cut'; readonly style?: string },
];

const NUMBER = { class: 'number' } as const;
const CUT = { class: 'cut' } as const;
const known = (value: number | null, format: (value: number) => string) =>
  value === null ? '–' : format(value);
const policyOf = ({ run, policy }: SignedRow) =>
  run === undefined ? policy : html`<a href=${formatAddress({ view: 'overview', run })}>${policy}</a>`;
const sourceOf = ({ source, command }: SignedRow) =>
  /^https?:\/\//.test(source)
    ? html`<a href=${source} rel="noreferrer">${source}</a>`
    : source ||
      (command.length > MAX_COMMAND
        ? html`<details><summary>command</summary><code>${command}</code></details>`
        : html`<code style="white-space: nowrap">${command}</code>`);

const SUCCESS_COLUMNS: readonly Column[] = [
  ['Success', ({ success }) => html`<b class="large">${percent(success)}</b>`, NUMBER],
  [
    `${withUnit(95, '%')} interval`,
    ({ low, high }) => (low === null || high === null ? '–' : `${percent(low)} to ${percent(high)}`),
    CUT,
  ],
  [
    'pass@k',
    ({ pass_at }) =>
      Object.entries(pass_at ?? {})
        .map(([k, share]) => `${k}: ${percent(share)}`)
        .join(', ') || '–',
    CUT,
  ],
];
const SOURCE_COLUMNS: readonly Column[] = [
  ['Date', ({ date }) => date.slice(0, 10), CUT],
  ['Command or source', sourceOf, { style: 'min-width: 13rem' }],
];
const OWN_COLUMNS: readonly Column[] = [
  ['Policy', policyOf, { class: 'cut', style: 'max-width: min(18rem, 35vw)' }],
  ['Size', ({ size }) => known(size, short), NUMBER],
  ...SUCCESS_COLUMNS,
  ['Steps', ({ steps }) => known(steps, short), NUMBER],
  ['Tokens', ({ tokens }) => known(tokens, short), NUMBER],
  ['Time', ({ seconds }) => known(seconds, duration), NUMBER],
  ...SOURCE_COLUMNS,
];
const SIGNED_COLUMNS: readonly Column[] = [
  ['Policy', policyOf],
  ['Author', ({ author }) => (author ? html`<span title=${author.fingerprint}>${author.name}</span>` : '–')],
  ...SUCCESS_COLUMNS,
  ['Levels, by seed', ({ levels = '–' }) => levels],
  ['Limits', ({ limits = '–' }) => limits],
  ['Replayed', ({ replayed = 'published' }) => replayed, NUMBER],
  ...SOURCE_COLUMNS,
];

interface TablesProps {
  readonly rows: readonly SignedRow[];
  readonly columns: readonly Column[];
}

/** A table for each environment and preset, in the order of their names, best results first. */
function Tables({ rows, columns }: TablesProps) {
  const nameOf = ({ env_id, preset }: SignedRow) => env_id + (preset === '' ? '' : `, ${preset}`);
  const tables = [...Map.groupBy(rows, nameOf)].sort(([a], [b]) => a.localeCompare(b));
  return tables.map(
    ([name, members]) => html`<section class="panel" key=${name}><h2>${name}</h2>
      <div class="scroll-x" tabindex="0" role="region" aria-label=${name}><table>
        <thead><tr>${columns.map(([head, , { class: kind } = {}]) => html`<th scope="col" class=${kind === 'number' ? kind : undefined}>${head}</th>`)}</tr></thead>
        <tbody>${members
          .toSorted((a, b) => b.success - a.success)
          .map(
            (row, i) =>
              html`<tr key=${i}>${columns.map(([, content, attributes]) => html`<td ...${attributes}>${content(row)}</td>`)}</tr>`,
          )}</tbody>
      </table></div></section>`,
  );
}

/** Runs with results that are not listed, and the reasons. */
function RefusedResults({ runs }: { readonly runs: readonly SignedRun[] }) {
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
