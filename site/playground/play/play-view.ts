import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Json } from '../../../shared/json.ts';
import { boardKindOf } from '../../boards/board.ts';
import { html } from '../../components/html.ts';
import { saveFile } from '../../components/save-file.ts';
import { useStore } from '../../components/store.ts';
import type { PlayAddress } from '../address.ts';
import type { Client } from '../client/client.ts';
import type { PlayedStep } from '../client/wire.ts';
import {
  BoardPlace,
  Figures,
  InfoBox,
  ObservationText,
  type Situation,
  Transcript,
} from '../components/board.ts';
import { ProblemNote } from '../components/notices.ts';
import { RequestLog } from '../components/request-log.ts';
import { ActionPad, AnyAction } from './action-pad.ts';
import type { ProgramTask } from './code-editor.ts';
import { type EnvironmentList, EnvironmentPicker } from './environment-picker.ts';
import { EndBanner, PolicyControls, Rules } from './episode-panels.ts';
import { actionOfKey, keyOf, keyOfSwipe } from './keys.ts';
import type { PlaySession } from './play-session.ts';
import {
  canUndo,
  type EpisodeState,
  isOver,
  observationOf,
  type PlayState,
  pendingText,
  totalReward,
} from './session-state.ts';
import { SetupPanel, StartBar } from './setup-panel.ts';

const UNDO_KEY = 'Backspace';
const POLICY_KEY = '.';
/** Selector of elements that handle keys themselves. */
const OWN_KEYS = 'input, textarea, select, summary, [role="grid"], [contenteditable], [data-own-keys]';
/** Boards that hold a task, which is answered in the field below. */
const TASKS: ReadonlySet<string> = new Set([
  'choice-question',
  'tried-question',
  'searched-question',
  'countdown',
  'program',
  'proof',
  'plain-text',
]);
/** Boards that are as wide as there is room, with the controls below. */
const WIDE_BOARDS: ReadonlySet<string> = new Set([
  ...TASKS,
  'shop-page',
  'household',
  'sudoku',
  'spatial-room',
  'bandit',
]);

interface PlayViewProps {
  readonly client: Client;
  readonly session: PlaySession;
  readonly list: EnvironmentList;
  readonly address: PlayAddress;
}

/** Pick an environment, play it, see what went over the wire. */
export function PlayView({ client, session, list, address }: PlayViewProps) {
  const state = useStore(session.store);
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
  useEffect(() => {
    const press = (event: KeyboardEvent) => takeKey(event, session);
    document.addEventListener('keydown', press);
    return () => {
      document.removeEventListener('keydown', press);
    };
  }, []);
  return html`<div class="play-view">
    <${EpisodeView} session=${session} state=${state} />
    <${EnvironmentPicker} list=${list} current=${state.envId} />
    <div class="stack roomy side">
      <${RequestLog} client=${client} />
      <${Steps} session=${session} moves=${state.episode?.moves ?? []} />
    </div>
  </div>`;
}

/** A key that was pressed anywhere on the page. */
function takeKey(event: KeyboardEvent, session: PlaySession): void {
  const { target } = event;
  if (event.defaultPrevented || (target instanceof Element && target.closest(OWN_KEYS))) return;
  const name = keyOf(event);
  const { episode, waiting } = session.store.state;
  if (name === undefined || !episode) return;
  const action = actionOfKey(episode.environment, name);
  // A key held down repeats faster than the server answers: it adds nothing while an action waits.
  if (action !== undefined) {
    if (!event.repeat || waiting.length === 0) void session.act(action);
  } else if (name === UNDO_KEY) void session.undo();
  else if (name === POLICY_KEY) void session.playOne();
  else return;
  event.preventDefault();
}

interface EpisodeViewProps {
  readonly session: PlaySession;
  readonly state: PlayState;
}

/** View in which an environment is played. */
function EpisodeView({ session, state }: EpisodeViewProps) {
  const place = useRef<HTMLElement>(null);
  const { envId, environment, isOpening, openProblem, episode, focusRequests } = state;
  const { setup } = session;
  // As it is before this change is drawn.
  const hadFocus = place.current?.contains(document.activeElement) ?? false;
  const act = (action: Json) => void session.act(action);
  useLayoutEffect(() => {
    if (focusRequests > 0 && !isTyping()) focusIn(place.current!, episode !== undefined);
  }, [focusRequests]);
  useLayoutEffect(() => {
    // What had the focus on the board is there no more: it stays in the board.
    if (hadFocus && document.activeElement === document.body)
      place.current!.querySelector<HTMLElement>('.state')?.focus({ preventScroll: true });
  }, [episode]);
  const situation = episode && situationOf(episode);
  return html`<section ref=${place} class="stack episode" aria-label="Play" tabindex="-1">
    <div class="intro-row"><header class="stack tight about">
      <h1 tabindex="-1">${environment?.title ?? envId}</h1>
      ${environment && html`<p class="instruction">${environment.instruction}</p>`}
    </header></div>
    <${ProblemNote} problem=${openProblem} />
    <div class="panel play loading" hidden=${!isOpening || episode !== undefined}><p>Opening a session …</p></div>
    ${episode && html`<${PlayPanel} key=${envId} session=${session} state=${state} episode=${episode} situation=${situation} act=${act} hadFocus=${hadFocus} />`}
    <div class="start-row">${setup && html`<${StartBar} key=${envId} setup=${setup} session=${session} />`}</div>
    <div class="stack">
      ${
        situation &&
        html`<${ObservationText} situation=${situation} /><${InfoBox} situation=${situation} />
          <${AnyAction} key=${envId} environment=${environment} act=${act} />`
      }
      ${
        setup &&
        html`<div class="row folded"><${Rules} environment=${environment} /><${SetupPanel} key=${envId} setup=${setup} session=${session} /></div>`
      }
    </div>
  </section>`;
}

/** To where it is played, or to the title of what cannot be. */
function focusIn(place: HTMLElement, isPlayed: boolean): void {
  const targets = ['.state [data-board-focus]:not(:disabled)', '[data-action-field]', '.state'];
  const played = isPlayed ? targets.map(each => place.querySelector<HTMLElement>(each)) : [];
  const target = played.find(each => each !== null) ?? place.querySelector('h1')!;
  target.focus({ preventScroll: true });
}

/** True if the focus is in a field, where it must stay. */
function isTyping(): boolean {
  return document.activeElement?.matches('input, textarea, select, [data-own-keys]') ?? false;
}

function situationOf(episode: EpisodeState): Situation {
  const { session, moves, structured } = episode;
  return {
    step: moves.length,
    steps: session.max_episode_steps,
    observation: observationOf(episode),
    structured,
    totalReward: totalReward(episode),
    info: {},
    ...moves.at(-1),
  };
}

interface PlayPanelProps extends EpisodeViewProps {
  readonly episode: EpisodeState;
  readonly situation: Situation;
  readonly act: (action: Json) => void;
  readonly hadFocus: boolean;
}

/** Figures, board and controls of an episode. */
function PlayPanel({ session, state, episode, situation, act, hadFocus }: PlayPanelProps) {
  const { environment } = episode;
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
    <div class="play-body">
      <${BoardPlace} situation=${situation} act=${over ? undefined : act} ...${canSwipe && swipe} data-swipe=${String(canSwipe)} />
      <div class="controls">
        <div class="pad-place" inert=${over}><${ActionPad} environment=${environment} act=${act} task=${taskOf(situation)} /></div>
        ${over && html`<div class="end-place"><${EndBanner} episode=${episode} session=${session} takesFocus=${hadFocus} /></div>`}
      </div>
    </div>
    <div class="row turns">
      <button type="button" aria-keyshortcuts=${UNDO_KEY} disabled=${!canUndo(episode)} onClick=${() => session.undo()}>Undo<kbd aria-hidden="true">⌫</kbd></button>
      <div inert=${over}><${PolicyControls} session=${session} state=${state} /></div>
      <p class="pending ${pending && 'chip warn'}" role="status">${pending}</p>
    </div>
    <${ProblemNote} problem=${state.problem} advice=${state.isGone ? 'Reset opens a new session.' : undefined} />
    <p class="hint">${episode.undoProblem}</p>
  </div>`;
}

/** The task of a state that is answered by a program. */
function taskOf({ structured }: Situation): ProgramTask | undefined {
  return boardKindOf(structured).name === 'program' ? (structured as ProgramTask) : undefined;
}

/** Listeners of an element on which a finger swipes. @param take called with the arrow key that is meant */
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

/** The steps of the episode, and a button that saves them. */
function Steps({ session, moves }: { readonly session: PlaySession; readonly moves: readonly PlayedStep[] }) {
  const [problem, setProblem] = useState<unknown>(undefined);
  const save = async () => {
    const { episode } = session;
    if (!episode) return;
    try {
      const content = new Blob([await episode.trajectory()], { type: 'application/jsonl' });
      saveFile(`${episode.state.session.session_id}.jsonl`, content);
      setProblem(undefined);
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<section class="panel" aria-labelledby="steps-title">
    <div class="panel-head"><h2 id="steps-title">Steps</h2><button type="button" class="quiet small" onClick=${save}>Save trajectory</button></div>
    <${ProblemNote} problem=${problem} />
    <${Transcript} moves=${moves} />
  </section>`;
}
