import type { ComponentChildren } from 'preact';
import { useLayoutEffect } from 'preact/hooks';
import { html } from '../../components/html.ts';
import { listen } from '../../components/store.ts';
import { type Outcome, outcomeOf } from '../../compute/outcome.ts';
import { listText } from '../../compute/run-query.ts';
import type { RunRow } from '../../server/reader/runs-table.ts';
import type { Address } from '../address.ts';
import { formatAddress } from '../address.ts';
import { useSource } from '../data/hooks.ts';
import type { RunStore } from '../data/run-store.ts';
import { duration, timeLeft } from '../format.ts';

/** Tone and sign of each outcome. */
export const OUTCOME_LOOKS: { readonly [outcome in Outcome]: readonly [tone: string, sign?: string] } = {
  running: ['live', '●'],
  improved: ['good', '▲'],
  flat: ['even', '■'],
  worse: ['bad', '▼'],
  stalled: ['warn', '‖'],
  failed: ['bad', '✕'],
  stopped: ['warn'],
  finished: [''],
  unknown: [''],
};

/** State of a run by its outcome; the sign repeats the color's meaning. */
export function StateChip({ row }: { readonly row: Pick<RunRow, 'state' | 'validations'> }) {
  const outcome = outcomeOf(row);
  const [tone, sign] = OUTCOME_LOOKS[outcome];
  return html`<span class="chip ${tone}" data-sign=${sign}>${outcome}</span>`;
}

const VIEWS = { runs: 'All runs', compare: 'Compare', leaderboard: 'Leaderboard' } as const;

interface PageTitleProps {
  readonly view: keyof typeof VIEWS;
  /** Shown between the title and the links to the other views. */
  readonly children?: ComponentChildren;
}

/** Title of a view of several runs, with links to the other ones. */
export function PageTitle({ view, children }: PageTitleProps) {
  const names = Object.entries(VIEWS) as [keyof typeof VIEWS, string][];
  return html`<div class="row"><h1>${view === 'runs' ? 'Runs' : VIEWS[view]}</h1>${children}
    <nav class="tabs push" aria-label="Runs">${names.map(
      ([name, text]) =>
        html`<a key=${name} href=${formatAddress({ view: name })} aria-current=${name === view ? 'page' : undefined}>${text}</a>`,
    )}</nav></div>`;
}

/** An error, or a note that data is loading. */
export function Status({ error, loading }: { readonly error?: string; readonly loading?: boolean }) {
  if (error !== undefined) {
    return html`<div class="note bad problem" role="alert"><p class="title">This cannot be shown</p><p>${error}</p></div>`;
  }
  return loading ? html`<p class="hint" role="status">Loading …</p>` : null;
}

interface PanelProps {
  readonly title: string;
  readonly children?: ComponentChildren;
  /** Shown at the right of the title. */
  readonly tools?: ComponentChildren;
  readonly class?: string;
}

export function Panel({ title, children, tools, class: kind = '' }: PanelProps) {
  return html`<section class="panel ${kind}">
    <div class="panel-head"><h2>${title}</h2>${tools}</div>
    ${children}
  </section>`;
}

/** Opens the comparison of runs; with fewer than two it offers a choice of runs. */
export function openCompare(ids: readonly string[]): void {
  location.hash = formatAddress({ view: 'compare', query: { runs: listText(ids) } });
}

/** Changes choices in the current address, without a step in the browser's history. An empty value removes one. */
export function choose(changes: Readonly<Record<string, string>>): void {
  const [path, search = ''] = location.hash.split('?', 2);
  const query = new URLSearchParams(search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === '') query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  const hash = `${path || formatAddress({ view: 'runs' })}${text === '' ? '' : `?${text}`}`;
  history.replaceState(null, '', hash);
  dispatchEvent(new HashChangeEvent('hashchange'));
}

interface SelectProps {
  readonly label: string;
  /** True for a label on the field's line, not above it. */
  readonly inline?: boolean;
  readonly value: string;
  readonly options: readonly (readonly [value: string, text: string])[];
  readonly onChange: (value: string) => void;
}

export function Select({ label, inline, value, options, onChange }: SelectProps) {
  return html`<label class=${inline ? 'pair' : 'field'}>
    <span class="fine">${label}</span>
    <select style="max-width: 17rem" value=${value} onChange=${(event: Event) => onChange((event.currentTarget as HTMLSelectElement).value)}>
      ${options.map(([option, text]) => html`<option key=${option} value=${option} selected=${option === value}>${text}</option>`)}
    </select>
  </label>`;
}

/** Progress of a run, with its elapsed or remaining time. */
export function progressOf({ state, stage, step, steps, eta_s: left, seconds }: RunRow): string {
  const done = `step ${step} of ${steps}`;
  if (state === 'running') return `${stage}, ${done}${left === null ? '' : `, ${timeLeft(left)}`}`;
  const ended = state === 'stopped' ? `stopped at ${done}` : done;
  return seconds > 0 ? `${ended} after ${duration(seconds)}` : ended;
}

/** Properties of every view of a run. */
export interface RunViewProps {
  readonly store: RunStore;
  readonly address: Address;
}

/** Takes the token that a server wants. */
export function TokenForm({ onToken }: { readonly onToken: () => void }) {
  const source = useSource();
  const unlock = (event: SubmitEvent) => {
    event.preventDefault();
    source.setToken(String(new FormData(event.currentTarget as HTMLFormElement).get('token')));
    onToken();
  };
  return html`<form class="row low controls" onSubmit=${unlock}><label class="field grow"><span>Token</span><input type="password" name="token" autocomplete="off" required /></label><button type="submit">Use it</button></form>`;
}

/** Calls the action of a key unless the reader types or a list takes the key. */
export function useKeys(actions: { readonly [key: string]: () => unknown }): void {
  // Installed before the first paint: a key pressed right then is meant for the page.
  useLayoutEffect(() => {
    const keydown = (event: KeyboardEvent) => {
      const typing = (event.target as Element).closest?.('input, select, textarea, [data-own-keys]');
      const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
      if (typing || event.ctrlKey || event.altKey || event.metaKey || !Object.hasOwn(actions, name)) return;
      event.preventDefault();
      actions[name]();
    };
    return listen({ keydown });
  });
}

/** Moves the cursor to the search field of the page and selects its text; does nothing on a page without one. */
export function focusSearch(): void {
  const field = document.querySelector<HTMLInputElement>('main input[type="search"]');
  field?.focus();
  field?.select();
}
