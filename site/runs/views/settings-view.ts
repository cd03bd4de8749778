import { html } from '../../components/html.ts';
import type { RunViewProps } from './run-view-props.ts';

/** Every setting of a run. */
export function SettingsView({ store }: RunViewProps) {
  const { config } = store.detail!;
  const entries = settingsOf(config);
  if (entries.length === 0)
    return html`<p class="panel">There is no <code>config.yaml</code> that can be read.</p>`;
  return html`<div class="panel scroll-x" tabindex="0" role="region" aria-label="Settings"><table>
    <thead><tr><th scope="col">Setting</th><th scope="col">Value</th></tr></thead>
    <tbody>${entries.map(([key, value]) => html`<tr key=${key}><th scope="row"><code>${key}</code></th><td><code>${value}</code></td></tr>`)}</tbody>
  </table></div>`;
}

/** Settings as `section.key` with their values as JSON. */
export function settingsOf(config: unknown, prefix = ''): (readonly [key: string, value: string])[] {
  if (typeof config !== 'object' || config === null) return [];
  return Object.entries(config).flatMap(([name, value]) => {
    const key = prefix + name;
    const isSection =
      typeof value === 'object' && value !== null && !Array.isArray(value) && Object.keys(value).length > 0;
    return isSection ? settingsOf(value, `${key}.`) : [[key, JSON.stringify(value)] as const];
  });
}
