import type { ComponentChildren } from 'preact';
import { html } from '../../components/html.ts';
import type { ShownState } from '../../server/reader/runs-table.ts';
import { formatAddress } from '../address.ts';

const STATES: { readonly [state in ShownState]: readonly [kind: string, text: string] } = {
  running: ['good', 'running'],
  finished: ['', 'finished'],
  stopped: ['warn', 'stopped'],
  stalled: ['bad', 'stalled'],
  failed: ['bad', 'failed'],
  unknown: ['', 'unknown'],
};

export function StateChip({ state }: { readonly state: ShownState }) {
  const [kind, text] = STATES[state];
  return html`<span class="chip ${kind} state-${state}">${text}</span>`;
}

/** An error, or a note that data is loading. */
export function Status({ error, loading }: { readonly error?: string; readonly loading?: boolean }) {
  if (error !== undefined) {
    return html`<div class="problem" role="alert"><p class="problem-title">This cannot be shown</p><p>${error}</p></div>`;
  }
  return loading ? html`<p class="hint" role="status">Loading …</p>` : null;
}

interface PanelProps {
  readonly title: string;
  readonly children?: ComponentChildren;
  /** At the right of the title. */
  readonly tools?: ComponentChildren;
  readonly class?: string;
}

export function Panel({ title, children, tools, class: kind = '' }: PanelProps) {
  return html`<section class="panel ${kind}">
    <div class="panel-head"><h2>${title}</h2>${tools}</div>
    ${children}
  </section>`;
}

/** Changes one choice of the present address. An empty value takes it away. */
export function choose(changes: Readonly<Record<string, string>>, replace = false): void {
  const [path, search = ''] = location.hash.split('?', 2);
  const query = new URLSearchParams(search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === '') query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  const hash = `${path || formatAddress({ view: 'runs' })}${text === '' ? '' : `?${text}`}`;
  if (replace) {
    history.replaceState(null, '', hash);
    dispatchEvent(new HashChangeEvent('hashchange'));
  } else location.hash = hash;
}

interface SelectProps {
  readonly label: string;
  readonly value: string;
  readonly options: readonly (readonly [value: string, text: string])[];
  readonly onChange: (value: string) => void;
}

export function Select({ label, value, options, onChange }: SelectProps) {
  return html`<label class="field select">
    <span>${label}</span>
    <select value=${value} onChange=${(event: Event) => onChange((event.currentTarget as HTMLSelectElement).value)}>
      ${options.map(([option, text]) => html`<option key=${option} value=${option} selected=${option === value}>${text}</option>`)}
    </select>
  </label>`;
}
