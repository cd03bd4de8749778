import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Json } from '../../../shared/json.ts';
import { saveFile } from '../../components/buttons.ts';
import { CodeField, type FieldSchema, SchemaField, textOf } from '../../components/fields.ts';
import { html } from '../../components/html.ts';
import { ProblemNote } from '../../components/request.ts';
import { listen, useStore, useUniqueId, useWork } from '../../components/store.ts';
import { withUnit } from '../../components/text.ts';
import { AnyAction } from '../../player/action-pad.ts';
import { formatNumber } from '../../player/format.ts';
import type { PlaySession } from '../../player/play-session.ts';
import { focusIn, Player, situationOf, takeKey } from '../../player/player.ts';
import { type EpisodeState, isDefault, isOver, type PlayState } from '../../player/session-state.ts';
import { propertiesOf, type Setup, shownText } from '../../player/setup.ts';
import { InfoBox, ObservationText, Transcript } from '../../player/situation.ts';
import type { Environment } from '../../player/wire.ts';
import type { PlayAddress } from '../address.ts';
import { type Client, sessionPath } from '../client/client.ts';
import { RequestLog } from '../components/request-log.ts';
import { type Reference, referencesOf } from '../environments/environments-view.ts';
import { type EnvironmentList, EnvironmentPicker } from './environment-picker.ts';

interface PlayViewProps {
  readonly client: Client;
  readonly session: PlaySession;
  readonly list: EnvironmentList;
  readonly address: PlayAddress;
}

/** Pick an environment, play it, see the requests. */
export function PlayView({ client, session, list, address }: PlayViewProps) {
  const state = useStore(session.store);
  const { problem: unlisted } = useStore(list.store);
  useLayoutEffect(() => {
    let isCurrent = true;
    const { view: _view, envId, ...start } = address;
    const listed = list.load();
    const open = async () => {
      const chosen = envId ?? (await listed)?.[0]?.env_id;
      if (chosen !== undefined && isCurrent) await session.open({ envId: chosen, ...start });
    };
    void open();
    return () => {
      isCurrent = false;
    };
  }, [address]);
  useEffect(() => listen({ keydown: event => takeKey(event, session) }), []);
  const { envId, episode, openProblem = envId === undefined ? unlisted : undefined } = state;
  const isOpen = openProblem === undefined;
  return html`<div class="stack play-view">
    <${EpisodeView} session=${session} state=${state} openProblem=${openProblem} />
    <${EnvironmentPicker} list=${list} current=${envId} isOpen=${isOpen} />
    ${
      (isOpen || client.exchanges.length > 0) &&
      html`<div class="stack side">
      <${RequestLog} client=${client} />
      <${Steps} client=${client} episode=${episode} />
    </div>`
    }
  </div>`;
}

interface EpisodeViewProps {
  readonly session: PlaySession;
  readonly state: PlayState;
  /** The reason why nothing is played. */
  readonly openProblem: unknown;
}

/** View in which an environment is played. */
function EpisodeView({ session, state, openProblem }: EpisodeViewProps) {
  const place = useRef<HTMLElement>(null);
  const { envId, environment, isOpening, episode, focusRequests } = state;
  const { setup } = session;
  // The focus before this change is drawn.
  const hadFocus = place.current?.contains(document.activeElement) ?? false;
  const act = (action: Json) => void session.act(action);
  useLayoutEffect(() => {
    if (focusRequests > 0) focusIn(place.current!, episode !== undefined);
  }, [focusRequests]);
  useLayoutEffect(() => {
    // The focused part of the board is gone: the focus stays on the board.
    if (hadFocus && document.activeElement === document.body)
      place.current!.querySelector<HTMLElement>('.state')?.focus({ preventScroll: true });
  }, [episode]);
  const situation = episode && situationOf(episode);
  const means = useMeans(episode);
  const start = setup && html`<${StartBar} key=${envId} setup=${setup} session=${session} />`;
  return html`<section ref=${place} class="stack episode" aria-label="Play" tabindex="-1">
    <div class="intro-row"><header class="stack tight about">
      <h1 tabindex="-1">${environment?.title ?? envId ?? (openProblem !== undefined && 'Play')}</h1>
      ${environment && html`<p class="instruction">${environment.instruction}</p>`}
    </header></div>
    <${ProblemNote} problem=${openProblem} />
    <div class="panel play loading" hidden=${!isOpening || episode !== undefined}><p>Opening a session …</p></div>
    ${
      episode &&
      html`<${Player} key=${envId} session=${session} state=${state} episode=${episode} means=${means} start=${start}>
        <${AfterEnd} episode=${episode} session=${session} takesFocus=${hadFocus} /><//>`
    }
    ${!episode && start}
    <div class="row folded" style="column-gap: var(--gap-5)">
      ${setup && html`<${Rules} environment=${environment} /><${SetupPanel} key=${envId} setup=${setup} session=${session} />`}
      ${
        situation &&
        html`<${ObservationText} situation=${situation} /><${InfoBox} situation=${situation} />
          <${AnyAction} key=${envId} environment=${environment} act=${act} />`
      }
    </div>
  </section>`;
}

/** The full rules, collapsed. */
function Rules({ environment }: { readonly environment: Environment }) {
  const { description, legend, reward_range, max_episode_steps: steps, known_optimum: best } = environment;
  const [least, greatest] = reward_range.map(value => (value === null ? 'anything' : formatNumber(value)));
  const optimum = best
    ? ` Best known success: ${withUnit(formatNumber(100 * best.success), '%')} (${best.source}).`
    : '';
  return html`<details class="stack rules">
    <summary>Rules</summary>
    ${description.split(/\n\s*\n/).map(text => html`<p class="prose">${text.replaceAll('\n', ' ')}</p>`)}
    ${
      legend.length > 0 &&
      html`<dl class="facts">${legend.map(
        ({ symbol, meaning }) =>
          html`<div key=${symbol}><dt><code>${symbol}</code></dt><dd>${meaning}</dd></div>`,
      )}</dl>`
    }
    <p class="hint">A step pays from ${least} to ${greatest}. An episode has at most ${steps} steps.${optimum}</p>
  </details>`;
}

interface AfterEndProps {
  readonly episode: EpisodeState;
  readonly session: PlaySession;
  /** The focused element disappears, so the focus moves to the first choice. */
  readonly takesFocus: boolean;
}

/** Choices after the end of an episode. */
function AfterEnd({ episode, session, takesFocus }: AfterEndProps) {
  const again = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => {
    if (takesFocus) again.current!.focus({ preventScroll: true });
  }, []);
  const seed = episode.session.seed ?? undefined;
  return html`<div class="row buttons" style="gap: var(--gap-2)">
    <button ref=${again} type="button" class="primary" onClick=${() => session.startAgain(undefined)}>Play again</button>
    ${
      episode.environment.capabilities.seed &&
      html`<button type="button" onClick=${() => session.startAgain(seed)}>Same level</button>
        <button type="button" onClick=${() => session.startAgain((seed ?? -1) + 1)}>Next seed</button>`
    }
  </div>`;
}

/** Mean returns of reference policies, if the episode has the settings of their measurement. */
function useMeans(episode: EpisodeState | undefined): string | undefined {
  const envId = episode && isOver(episode) && isDefault(episode) ? episode.environment.env_id : undefined;
  const { value } = useWork(
    async () => ({ envId, references: envId ? await referencesOf(envId) : [] }),
    [envId],
  );
  const references = value?.envId === envId ? (value?.references ?? []) : [];
  if (references.length === 0) return undefined;
  const mean = ({ name, mean_return }: Reference) =>
    `${name} ${formatNumber(Number(mean_return.toPrecision(3)))}`;
  return `On average: ${references.map(mean).join(', ')}`;
}

/** The steps of the episode, and a button that saves them. */
function Steps({ client, episode }: { readonly client: Client; readonly episode?: EpisodeState }) {
  const [problem, setProblem] = useState<unknown>(undefined);
  const save = async () => {
    if (!episode) return;
    const { session_id: id } = episode.session;
    try {
      const content = new Blob([await client.text(sessionPath(id, 'trajectory'))], {
        type: 'application/jsonl',
      });
      saveFile(`${id}.jsonl`, content);
      setProblem(undefined);
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<section class="panel" aria-labelledby="steps-title">
    <div class="panel-head"><h2 id="steps-title">Steps</h2><button type="button" class="quiet small" onClick=${save}>Save trajectory</button></div>
    <${ProblemNote} problem=${problem} />
    <${Transcript} moves=${episode?.moves ?? []} />
  </section>`;
}

interface SetupProps {
  readonly setup: Setup;
  readonly session: PlaySession;
}

/** Preset, seed, and the buttons that begin an episode. */
function StartBar({ setup, session }: SetupProps) {
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
function SetupPanel({ setup, session }: SetupProps) {
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
