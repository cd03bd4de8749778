import type { ComponentChildren } from 'preact';
import { useRef } from 'preact/hooks';
import type { Json } from '../../shared/json.ts';
import { counted } from '../../shared/text.ts';
import { boardKindOf } from '../boards/board.ts';
import { endText } from '../components/ends.ts';
import { textOf } from '../components/fields.ts';
import { html } from '../components/html.ts';
import { ProblemNote } from '../components/request.ts';
import { useUniqueId } from '../components/store.ts';
import { ActionPad } from './action-pad.ts';
import type { ProgramTask } from './code-editor.ts';
import { episodeStatus, formatNumber, formatValue, namedAction } from './format.ts';
import { actionOfKey, keyOf, keyOfSwipe } from './keys.ts';
import type { PlaySession } from './play-session.ts';
import {
  type EpisodeState,
  isOver,
  observationOf,
  type PlayState,
  pendingText,
  SPEEDS,
  totalReward,
} from './session-state.ts';
import { BoardPlace, Figures, type Situation } from './situation.ts';

const UNDO_KEY = 'Backspace';
const POLICY_KEY = '.';
/** Characters of a better action in the banner. */
const MAX_BETTER = 200;
/** Failed tests that the banner names. */
const MAX_FAILED = 40;
/** Selector of elements that handle keys themselves. */
const OWN_KEYS = 'input, textarea, select, summary, [role="grid"], [contenteditable], [data-own-keys]';
/** Boards as high as their content: tasks, which are answered in the field below, and pages of a shop. */
const TASKS: ReadonlySet<string> = new Set([
  'choice-question',
  'tried-question',
  'searched-question',
  'countdown',
  'program',
  'proof',
  'plain-text',
  'shop-page',
  'bandit',
]);
/** Boards that take the whole width, with the controls below. */
const WIDE_BOARDS: ReadonlySet<string> = new Set([...TASKS, 'household', 'sudoku', 'spatial-room']);

/** Handles a pressed key in the episode of a session. */
export function takeKey(event: KeyboardEvent, session: PlaySession): void {
  const { target } = event;
  if (event.defaultPrevented || (target instanceof Element && target.closest(OWN_KEYS))) return;
  const name = keyOf(event);
  const { episode, waiting } = session.store.state;
  if (name === undefined || !episode) return;
  const action = actionOfKey(episode.environment, name);
  // A held key repeats faster than the server answers: it adds nothing while an action waits.
  if (action !== undefined) {
    if (!event.repeat || waiting.length === 0) void session.act(action);
  } else if (name === UNDO_KEY) void session.undo();
  else if (name === POLICY_KEY) void session.playOne();
  else return;
  event.preventDefault();
}

/** Moves the focus to the board, or to the title of an unplayable environment, unless somebody types. */
export function focusIn(place: HTMLElement, isPlayed: boolean): void {
  if (document.activeElement?.matches('input, textarea, select, [data-own-keys]')) return;
  const targets = ['.state [data-board-focus]:not(:disabled)', '[data-action-field]', '.state'];
  const played = isPlayed ? targets.map(each => place.querySelector<HTMLElement>(each)) : [];
  const target = played.find(each => each !== null) ?? place.querySelector('h1');
  target?.focus({ preventScroll: true });
}

export function situationOf(episode: EpisodeState): Situation {
  const { environment, session, moves, structured } = episode;
  const last = moves.at(-1);
  return {
    step: moves.length,
    steps: session.max_episode_steps,
    observation: observationOf(episode),
    structured,
    totalReward: totalReward(episode),
    info: {},
    ...last,
    ...(last && { action: namedAction(environment, last.action) }),
  };
}

interface PlayerProps {
  readonly session: PlaySession;
  readonly state: PlayState;
  readonly episode: EpisodeState;
  /** Name of the group of actions. */
  readonly label?: string;
  /** Shown in the banner at the end: results to compare with, and choices. */
  readonly means?: string;
  readonly children?: ComponentChildren;
  /** Fields and buttons that begin another episode; below the controls. */
  readonly start?: ComponentChildren;
}

/** Figures, board and controls of an episode. */
export function Player({ session, state, episode, label, means, children, start }: PlayerProps) {
  const { environment } = episode;
  const situation = situationOf(episode);
  const act = (action: Json) => void session.act(action);
  const over = isOver(episode);
  const kind = boardKindOf(situation.structured).name;
  const swipe = useSwipe(name => {
    const action = actionOfKey(environment, name);
    if (action !== undefined) act(action);
  });
  const pending = pendingText(state);
  const canSwipe = actionOfKey(environment, 'ArrowUp') !== undefined && !over;
  return html`<div class="panel play" data-wide=${String(WIDE_BOARDS.has(kind))} data-task=${String(TASKS.has(kind))} data-over=${String(over)}>
    <${Figures} situation=${situation} />
    <${BoardPlace} situation=${situation} act=${over ? undefined : act} ...${canSwipe && swipe} data-swipe=${String(canSwipe)} />
    <div class="controls">
      <div class="pad-place" inert=${over}><${ActionPad} environment=${environment} label=${label} act=${act} task=${taskOf(situation)} /></div>
      ${over && html`<${EndBanner} episode=${episode} means=${means}>${children}<//>`}
    </div>
    <div class="row turns">
      <button type="button" aria-keyshortcuts=${UNDO_KEY} disabled=${!session.canUndo} onClick=${() => session.undo()}>Undo<kbd aria-hidden="true">⌫</kbd></button>
      <div inert=${over}><${PolicyControls} session=${session} state=${state} /></div>
      <p class="pending ${pending && 'chip warn'}" role="status">${pending}</p>
    </div>
    <${ProblemNote} problem=${state.problem} advice=${state.isGone ? 'Reset opens a new session.' : undefined} />
    ${start}
    <p class="hint">${episode.undoProblem}</p>
  </div>`;
}

/** The task of a state that is answered by a program. */
function taskOf({ structured }: Situation): ProgramTask | undefined {
  return boardKindOf(structured).name === 'program' ? (structured as ProgramTask) : undefined;
}

/**
 * Listeners for swipes on an element.
 * @param take called with the arrow key of the swipe
 */
function useSwipe(take: (name: string) => void) {
  const start = useRef<{ readonly x: number; readonly y: number } | undefined>(undefined);
  return {
    onTouchStart: ({ touches }: TouchEvent) => {
      const [{ clientX: x, clientY: y }] = touches;
      // Two fingers zoom.
      start.current = touches.length === 1 ? { x, y } : undefined;
    },
    onTouchEnd: ({ changedTouches }: TouchEvent) => {
      const from = start.current;
      start.current = undefined;
      if (!from) return;
      const name = keyOfSwipe(changedTouches[0].clientX - from.x, changedTouches[0].clientY - from.y);
      if (name !== undefined) take(name);
    },
  };
}

interface PolicyProps {
  readonly session: PlaySession;
  readonly state: PlayState;
}

/** Lets a reference policy of the environment or another player play, one step or continuously. */
function PolicyControls({ session, state }: PolicyProps) {
  const id = useUniqueId();
  const { environment, policy, speed, isPolicyPlaying } = state;
  const players = [
    ...environment!.references,
    ...[...session.players.keys()].map(name => ({ name, title: '' })),
  ];
  if (players.length === 0)
    return html`<p class="hint">The environment has no reference policy to play it.</p>`;
  const choose = (choice: object) => session.store.dispatch({ type: 'policy', ...choice });
  return html`<div class="row policy" role="group" aria-label="Reference policy">
    <span class="pair"><label for="${id}-policy">Let play</label>
      <select id="${id}-policy" aria-label="Let play" value=${policy} onChange=${(event: Event) => choose({ policy: textOf(event) })}>
        ${players.map(({ name, title }) => html`<option key=${name} value=${name} title=${title}>${name}</option>`)}
      </select></span>
    <button type="button" aria-keyshortcuts="." onClick=${() => session.playOne()}>One step<kbd aria-hidden="true">.</kbd></button>
    <button type="button" onClick=${() => (isPolicyPlaying ? session.stop() : session.playOn())}>${isPolicyPlaying ? 'Stop' : 'Play on'}</button>
    <span class="pair"><label for="${id}-speed">Speed</label>
      <select id="${id}-speed" aria-label="Speed" value=${speed} onChange=${(event: Event) => choose({ speed: textOf(event) })}>
        ${Object.keys(SPEEDS).map(name => html`<option key=${name} value=${name}>${name}</option>`)}
      </select></span>
  </div>`;
}

interface EndBannerProps extends Pick<PlayerProps, 'episode' | 'means' | 'children'> {}

/** The reason for an episode's end, with its result and the next choices, in place of the controls. */
function EndBanner({ episode, means, children }: EndBannerProps) {
  const { environment, moves, better } = episode;
  const last = moves.at(-1)!;
  const result = last.info.success === true ? 'Success' : 'Not solved';
  const end = last.info.ended_by;
  const headline =
    typeof end === 'string' ? endText(end, environment.ends) : last.truncated ? 'Out of steps' : result;
  const figures = `Return ${formatNumber(totalReward(episode))} after ${counted(moves.length, 'step')}.`;
  const failed = last.info.failed_tests;
  return html`<div class="note end-banner ${episodeStatus(last).tone}" role="group" aria-label="End of the episode">
    <div>
      <p class="title large headline">${headline}</p>
      <p>${headline === result ? figures : `${result}. ${figures}`}</p>
      ${Array.isArray(failed) && failed.length > 0 && html`<p>Failed ${failed.length > 1 ? 'tests' : 'test'}: ${failed.slice(0, MAX_FAILED).join(', ')}${failed.length > MAX_FAILED ? ` and ${failed.length - MAX_FAILED} more` : ''}</p>`}
      ${better && html`<p>Here the ${better.policy} player plays <b>${formatValue(namedAction(environment, better.action), 0, MAX_BETTER)}</b>.</p>`}
      ${means && html`<p class="fine">${means}</p>`}
    </div>
    ${children}
  </div>`;
}
