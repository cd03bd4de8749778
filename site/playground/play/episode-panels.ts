import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { endText } from '../../components/ends.ts';
import { html } from '../../components/html.ts';
import { useUniqueId } from '../../components/store.ts';
import { withUnit } from '../../components/with-unit.ts';
import type { Environment } from '../client/wire.ts';
import { textOf } from '../components/fields.ts';
import { episodeStatus, formatNumber } from '../components/format.ts';
import { type Reference, referencesOf } from '../environments/showcase.ts';
import type { PlaySession } from './play-session.ts';
import { type EpisodeState, isDefault, type PlayState, SPEEDS, totalReward } from './session-state.ts';

interface EnvironmentProps {
  readonly environment: Environment;
}

/** The rules in full, folded away. */
export function Rules({ environment }: EnvironmentProps) {
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

interface PolicyProps {
  readonly session: PlaySession;
  readonly state: PlayState;
}

/** Lets a reference policy of the environment play, one step or on and on. */
export function PolicyControls({ session, state }: PolicyProps) {
  const id = useUniqueId();
  const { environment, policy, speed, isPolicyPlaying } = state;
  const { references } = environment!;
  if (references.length === 0)
    return html`<p class="hint">The environment has no reference policy to play it.</p>`;
  const choose = (choice: object) => session.store.dispatch({ type: 'policy', ...choice });
  return html`<div class="row policy" role="group" aria-label="Reference policy">
    <span class="pair"><label for="${id}-policy">Let play</label>
      <select id="${id}-policy" aria-label="Let play" value=${policy} onChange=${(event: Event) => choose({ policy: textOf(event) })}>
        ${references.map(({ name, title }) => html`<option key=${name} value=${name} title=${title}>${name}</option>`)}
      </select></span>
    <button type="button" aria-keyshortcuts="." onClick=${() => session.playOne()}>One step<kbd aria-hidden="true">.</kbd></button>
    <button type="button" onClick=${() => (isPolicyPlaying ? session.stop() : session.playOn())}>${isPolicyPlaying ? 'Stop' : 'Play on'}</button>
    <span class="pair"><label for="${id}-speed">Speed</label>
      <select id="${id}-speed" aria-label="Speed" value=${speed} onChange=${(event: Event) => choose({ speed: textOf(event) })}>
        ${Object.keys(SPEEDS).map(name => html`<option key=${name} value=${name}>${name}</option>`)}
      </select></span>
  </div>`;
}

interface EndBannerProps {
  readonly episode: EpisodeState;
  readonly session: PlaySession;
  /** The focused element goes away, so the focus goes to the first choice. */
  readonly takesFocus: boolean;
}

/** Result of an episode and the choices after it, in place of the controls. */
export function EndBanner({ episode, session, takesFocus }: EndBannerProps) {
  const { environment, moves } = episode;
  const again = useRef<HTMLButtonElement>(null);
  const [references, setReferences] = useState<readonly Reference[]>([]);
  useLayoutEffect(() => {
    if (takesFocus) again.current!.focus({ preventScroll: true });
  }, []);
  useEffect(() => {
    let isShown = true;
    if (isDefault(episode))
      void referencesOf(environment.env_id).then(found => isShown && setReferences(found));
    return () => {
      isShown = false;
    };
  }, []);
  const last = moves.at(-1)!;
  const result = last.info.success === true ? 'Success' : 'Not solved';
  const end = last.info.ended_by;
  const headline =
    typeof end === 'string' ? endText(end, environment.ends) : last.truncated ? 'Out of steps' : result;
  const figures = `Return ${formatNumber(totalReward(episode))} after ${moves.length} steps.`;
  const means = references.map(
    ({ name, mean_return }) => `${name} ${formatNumber(Number(mean_return.toPrecision(3)))}`,
  );
  const { seed } = episode.session;
  const failed = last.info.failed_tests;
  return html`<div class="note end-banner ${episodeStatus(last).tone}" role="group" aria-label="End of the episode">
    <div>
      <p class="title headline">${headline}</p>
      <p>${headline === result ? figures : `${result}. ${figures}`}</p>
      ${Array.isArray(failed) && failed.length > 0 && html`<p>Failed ${failed.length > 1 ? 'tests' : 'test'}: ${failed.join(', ')}</p>`}
      ${means.length > 0 && html`<p class="fine">On average: ${means.join(', ')}</p>`}
    </div>
    <div class="row buttons">
      <button ref=${again} type="button" class="primary" onClick=${() => session.startAgain(undefined)}>Play again</button>
      ${
        environment.capabilities.seed &&
        html`<button type="button" onClick=${() => session.startAgain(seed ?? undefined)}>Same level</button>
          <button type="button" onClick=${() => session.startAgain((seed ?? -1) + 1)}>Next seed</button>`
      }
    </div>
  </div>`;
}
