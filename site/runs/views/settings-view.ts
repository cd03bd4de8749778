import { counted } from '../../../shared/text.ts';
import { html } from '../../components/html.ts';
import { allSettings, type SettingValue } from '../../compute/settings-text.ts';
import type { RunViewProps } from './parts.ts';
import { choose } from './parts.ts';

type Entry = readonly [key: string, value: SettingValue];

/** Every setting of a run by section, those that differ from their defaults first. */
export function SettingsView({ store, address }: RunViewProps) {
  const { config, row } = store.detail!;
  const entries = allSettings(config);
  if (entries.length === 0)
    return html`<p class="panel">There is no <code>config.yaml</code> that can be read.</p>`;
  const { q = '' } = address.query;
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const found = entries.filter(([key, value]) => {
    const text = `${key} ${String(value)}`.toLowerCase();
    return words.every(word => text.includes(word));
  });
  const { changed } = row.run;
  const differs = ([key]: Entry) =>
    changed?.some(name => key === name || key.startsWith(`${name}.`)) === true;
  const sections = Map.groupBy(
    found.filter(entry => !differs(entry)),
    ([key]) => (key.includes('.') ? key.slice(0, key.indexOf('.')) : 'run'),
  );
  const first = found.filter(differs);
  return html`<div class="stack">
    <label class="search"><span class="visually-hidden">Search settings</span>
      <input type="search" value=${q} placeholder="Key or value" onInput=${(event: Event) => choose({ q: (event.currentTarget as HTMLInputElement).value })} /></label>
    <p class="fine" role="status">${found.length === entries.length ? counted(entries.length, 'setting') : `${found.length} of ${counted(entries.length, 'setting')}`}${changed ? `, ${first.length} differ from the defaults` : '; this run does not say which differ from the defaults'}</p>
    <div class="settings">${first.length > 0 && html`<${Section} title="Different from the defaults" entries=${first} whole=${true} />`}
    ${[...sections].filter(([name]) => name !== 'tags').map(([name, list]) => html`<${Section} key=${name} title=${name} entries=${list} />`)}</div>
    ${sections.has('tags') && html`<details open=${q !== ''}><summary>Environments</summary><${Section} title="tags" entries=${sections.get('tags')} /></details>`}
  </div>`;
}

/** A key that continues on another line after a dot or an underscore. */
const breakable = (key: string) => key.split(/(?<=[._])/).map(part => html`${part}<wbr />`);

interface SectionProps {
  readonly title: string;
  readonly entries: readonly Entry[];
  /** Keys with their section. */
  readonly whole?: boolean;
}

function Section({ title, entries, whole }: SectionProps) {
  const name = (key: string) => (whole || !key.startsWith(`${title}.`) ? key : key.slice(title.length + 1));
  return html`<section class="panel"><h2>${title}</h2>
    <div class="scroll-x" tabindex="0" role="region" aria-label=${title}><table style="overflow-wrap: anywhere">
      <tbody>${entries.map(([key, value]) => html`<tr key=${key}><th scope="row"><code title=${key}>${breakable(name(key))}</code></th><td><code>${value === null ? 'null' : String(value)}</code></td></tr>`)}</tbody>
    </table></div></section>`;
}
