import { useState } from 'preact/hooks';
import { html } from '../../components/html.ts';
import type { RunsReply } from '../../server/reader/run-reader.ts';
import { useData } from '../data/hooks.ts';
import { counted, percent } from '../format.ts';
import { StateChip, Status } from './parts.ts';

const MAX_LISTED = 20;

interface PickerProps {
  readonly chosen: readonly string[];
  readonly onChange: (ids: readonly string[]) => void;
}

/** A list of runs to choose from, searched like the table of runs. */
export function RunPicker({ chosen, onChange }: PickerProps) {
  const [q, setQ] = useState('');
  const { value, error } = useData<RunsReply>('runs', { limit: MAX_LISTED, q: q || undefined });
  const flip = (id: string) =>
    onChange(chosen.includes(id) ? chosen.filter(one => one !== id) : [...chosen, id]);
  const left = (value?.matching ?? 0) - (value?.rows.length ?? 0);
  return html`<div class="stack picker">
    <label class="field"><span>Find runs</span><input type="search" value=${q} placeholder="Name, or a setting: group_size>1"
      onInput=${(event: Event) => setQ((event.currentTarget as HTMLInputElement).value)} /></label>
    <${Status} error=${error} />
    <ul class="stack tight">${value?.rows.map(row => {
      const last = row.validations.at(-1);
      return html`<li key=${row.id}><label class="check"><input type="checkbox" checked=${chosen.includes(row.id)} onChange=${() => flip(row.id)} />
        <span class="cut">${row.id}</span> <${StateChip} row=${row} /> ${last && html`<b>${percent(last.success)}</b>`}</label></li>`;
    })}</ul>
    ${value?.matching === 0 && html`<p class="hint">No run matches.</p>`}
    ${left > 0 && html`<p class="fine">and ${counted(left, 'more run')}: search to find them</p>`}
  </div>`;
}
