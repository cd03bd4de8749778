import { CodeField, type FieldSchema, SchemaField, textOf } from '../../components/fields.ts';
import { html } from '../../components/html.ts';
import { ProblemNote } from '../../components/problem-note.ts';
import { useStore, useUniqueId } from '../../components/store.ts';
import type { PlaySession } from '../../player/play-session.ts';
import { propertiesOf, type Setup, shownText } from '../../player/setup.ts';

interface SetupProps {
  readonly setup: Setup;
  readonly session: PlaySession;
}

/** Preset, seed, and the buttons that begin an episode. */
export function StartBar({ setup, session }: SetupProps) {
  const id = useUniqueId();
  const { environment, preset, seed } = useStore(setup.store);
  const { presets, capabilities } = environment;
  const names = Object.keys(presets);
  const choose = (event: Event) => {
    setup.set({ preset: textOf(event) || undefined });
    void session.startOver(setup.takeSeed());
  };
  const reset = (event: Event) => {
    event.preventDefault();
    void session.reset(setup.takeSeed());
  };
  const draw = () => {
    setup.set({ isSeedEdited: false });
    void session.reset(undefined);
  };
  return html`<form class="row start" novalidate onSubmit=${reset}>
    ${
      names.length > 0 &&
      html`<span class="pair"><label for="${id}-preset">Preset</label>
        <select id="${id}-preset" value=${preset ?? ''} onChange=${choose}>
          <option value="">defaults</option>${names.map(name => html`<option key=${name} value=${name}>${name}</option>`)}
        </select></span>`
    }
    <span class="pair"><label for="${id}-seed">Seed</label>
      <input id="${id}-seed" type="number" style="max-width: 6.5rem" min="0" step="1" placeholder=${capabilities.seed ? 'drawn' : 'none'}
        disabled=${!capabilities.seed} value=${seed}
        onInput=${(event: Event) => setup.set({ seed: textOf(event), isSeedEdited: true })} /></span>
    <button type="submit">Reset</button>
    ${capabilities.seed && html`<button type="button" onClick=${draw}>New seed</button>`}
  </form>`;
}

/** All settings of an environment besides preset and seed, collapsed. */
export function SetupPanel({ setup, session }: SetupProps) {
  const id = useUniqueId();
  const state = useStore(setup.store);
  const { environment, options, wrappers, format, errors, problem, isOpen } = state;
  const fields = Object.entries(propertiesOf(environment));
  const pins = Object.keys((environment.options_schema as FieldSchema).properties ?? {});
  const toggle = (event: Event) => {
    const { open } = event.currentTarget as HTMLDetailsElement;
    if (open !== isOpen) setup.set({ isOpen: open });
  };
  return html`<details class="stack setup" open=${isOpen} onToggle=${toggle}>
    <summary>Settings</summary>
    <h2>Configuration</h2>
    <div class="tiles fields" style="--tile: 13rem">
      ${fields.length === 0 && html`<p class="hint">There is nothing to set.</p>`}
      ${fields.map(
        ([
          name,
          schema,
        ]) => html`<${SchemaField} key=${name} name=${name} schema=${schema} text=${shownText(state, name)}
          error=${errors[`config/${name}`]} onText=${(text: string) => setup.write({ type: 'written', name, text })} />`,
      )}
    </div>
    <h2>Session</h2>
    <div class="tiles fields" style="--tile: 13rem">
      <div class="field"><label for="${id}-format">Observation format</label>
        <select id="${id}-format" value=${format} onChange=${(event: Event) => setup.set({ format: textOf(event) })}>
          ${environment.observation_formats.map(name => html`<option key=${name} value=${name}>${name}</option>`)}
        </select></div>
      <${CodeField} label="Options of the start" rows=${2} text=${options} error=${errors.options}
        hint=${pins.length > 0 ? `A JSON object that may pin ${pins.join(', ')}.` : 'The environment has none.'}
        onText=${(text: string) => setup.set({ options: text })} />
      <${CodeField} label="Wrappers" rows=${2} text=${wrappers} error=${errors.wrappers}
        hint='A JSON list such as [{"name": "time_limit", "options": {"max_steps": 5}}].'
        onText=${(text: string) => setup.write({ type: 'set', values: { wrappers: text } })} />
    </div>
    <${ProblemNote} problem=${problem} />
    <button type="button" class="primary" onClick=${() => session.startOver(setup.takeSeed())}>Start over with these settings</button>
  </details>`;
}
