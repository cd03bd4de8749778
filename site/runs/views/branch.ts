import { useRef, useState } from 'preact/hooks';
import type { Json } from '../../../shared/json.ts';
import type { EpisodeRecord } from '../../../shared/run-folder/run-files.ts';
import { Board } from '../../boards/board.ts';
import { html } from '../../components/html.ts';
import { useSource } from '../data/hooks.ts';
import type { Source } from '../data/source.ts';
import { short } from '../format.ts';
import type { RunViewProps } from './run-view-props.ts';
import { Arrow } from './turn-words.ts';

/** Most steps of a reference player in one go, and most buttons for the actions of a state. */
const MAX_STEPS = 200;
const MAX_BUTTONS = 16;

interface EnvironmentFacts {
  readonly actions?: readonly string[];
  readonly action_space: { readonly gymnasium?: { readonly start?: number } };
  readonly references: readonly { readonly name: string; readonly title: string }[];
}

interface Step {
  readonly name: string;
  readonly reward: number;
}

/** A session that left an episode: what was played since, and where it is. */
interface Branch {
  readonly turn: number;
  readonly by: string;
  readonly sessionId: string;
  readonly environment: EnvironmentFacts;
  readonly steps: readonly Step[];
  readonly state?: Json;
  readonly text?: string;
  /** Actions that can be taken by hand, with their names. */
  readonly choices: readonly (readonly [name: string, action: Json])[];
  readonly ended: boolean;
  readonly success: boolean;
}

type Item = { readonly op: string; readonly [key: string]: Json | undefined };

/** Runs operations of the environment server in order. @throws Error with the detail of the first that failed */
async function batch(source: Source, items: readonly Item[]): Promise<readonly unknown[]> {
  const { results } = await source.post<{
    results: readonly {
      readonly ok: boolean;
      readonly result?: unknown;
      readonly error?: { readonly detail?: string };
    }[];
  }>('v1/batch', { items });
  return results.map(({ ok, result, error }) => {
    if (!ok) throw new Error(error?.detail ?? 'the server refused an action of the episode');
    return result;
  });
}

/** Opens a session of the episode's level and brings it to the state before a turn. */
async function openBranch(
  source: Source,
  episode: EpisodeRecord,
  config: object,
  turn: number,
): Promise<Branch> {
  const { session_id: sessionId } = await source.post<{ session_id: string }>('v1/sessions', {
    env_id: episode.env_id,
    config,
    seed: episode.seed,
    ...(episode.dynamics_seed === undefined ? {} : { dynamics_seed: episode.dynamics_seed }),
  });
  const actions = episode.turns.slice(0, turn).flatMap(({ actions }) => actions);
  const items = actions.map(action => ({ op: 'step', session_id: sessionId, action }));
  const results = await batch(source, [...items, { op: 'get_environment', env_id: episode.env_id }]);
  const environment = results.at(-1) as EnvironmentFacts;
  const opened = {
    turn,
    by: 'hand',
    sessionId,
    environment,
    steps: [],
    choices: [],
    ended: false,
    success: false,
  };
  return look(source, opened);
}

interface Result {
  readonly reward: number;
  readonly terminated: boolean;
  readonly truncated: boolean;
  readonly info: { readonly success?: unknown };
}

/** Takes an action in the branch. */
async function take(source: Source, branch: Branch, action: Json): Promise<Branch> {
  const [result] = (await batch(source, [{ op: 'step', session_id: branch.sessionId, action }])) as [Result];
  const { actions, action_space } = branch.environment;
  const named =
    typeof action === 'number' ? actions?.[action - (action_space.gymnasium?.start ?? 0)] : undefined;
  const name = named ?? (typeof action === 'string' ? action : JSON.stringify(action));
  return look(source, {
    ...branch,
    steps: [...branch.steps, { name, reward: result.reward }],
    ended: result.terminated || result.truncated,
    success: result.info.success === true,
  });
}

/** The state that the branch is in, and what can be done there. */
async function look(source: Source, branch: Branch): Promise<Branch> {
  const { sessionId: session_id, environment } = branch;
  const [structured, text, valid] = await Promise.all(
    [
      { op: 'render', session_id, mode: 'structured' },
      { op: 'render', session_id, mode: 'text' },
      { op: 'valid_actions', session_id },
    ].map(item =>
      batch(source, [item]).then(
        ([result]) => result,
        () => undefined,
      ),
    ),
  );
  const known = (valid as { valid_actions?: readonly string[] | null } | undefined)?.valid_actions;
  const start = environment.action_space.gymnasium?.start ?? 0;
  const names = environment.actions;
  const choices = names
    ? names.flatMap((name, i) => (!known || known.includes(name) ? [[name, i + start] as const] : []))
    : (known ?? []).map(name => [name, name] as const);
  return {
    ...branch,
    state: (structured as { structured?: Json } | undefined)?.structured,
    text: (text as { text?: string } | undefined)?.text,
    choices: branch.ended ? [] : choices.slice(0, MAX_BUTTONS),
  };
}

/** State of the branches of an episode, and what changes it. */
export function useBranch(store: RunViewProps['store'], episode: EpisodeRecord) {
  const source = useSource();
  const [branch, setBranch] = useState<Branch>();
  const [error, setError] = useState<string>();
  const [busy, setBusy] = useState(false);
  /** Grows with each branch and each stop: what an older one brings is dropped. */
  const current = useRef(0);
  const { api, server } = source.site;
  const available = api !== null && server !== null;
  const run = async (work: (isCurrent: () => boolean) => Promise<void>) => {
    const mine = ++current.current;
    setBusy(true);
    setError(undefined);
    try {
      await work(() => mine === current.current);
    } catch (reason) {
      if (mine === current.current) setError((reason as Error).message);
    } finally {
      if (mine === current.current) setBusy(false);
    }
  };
  const open = (turn: number, by: string) =>
    run(async isCurrent => {
      const config = store.detail!.row.run.tags.find(({ tag }) => tag === episode.tag)?.config ?? {};
      let next: Branch = { ...(await openBranch(source, episode, config, turn)), by };
      if (!isCurrent()) return;
      setBranch(next);
      for (let step = 0; by !== 'hand' && !next.ended && step < MAX_STEPS; step++) {
        const item = { op: 'reference', session_id: next.sessionId, policy: by, count: 1 };
        const [plan] = (await batch(source, [item])) as [{ readonly actions: readonly Json[] }];
        if (plan.actions.length === 0 || !isCurrent()) return;
        next = await take(source, next, plan.actions[0]);
        if (!isCurrent()) return;
        setBranch(next);
      }
    });
  const act = (action: Json) =>
    run(async isCurrent => {
      const next = await take(source, branch!, action);
      if (isCurrent()) setBranch(next);
    });
  const close = () => {
    current.current++;
    setBusy(false);
    setError(undefined);
    setBranch(undefined);
  };
  const link =
    branch && server !== null ? `${server}#/watch/${encodeURIComponent(branch.sessionId)}` : undefined;
  return { available, branch, error, busy, open, act, close, link };
}

export type BranchState = ReturnType<typeof useBranch>;

/** Buttons that leave the episode before a turn. */
export function BranchControls({ state, turn }: { readonly state: BranchState; readonly turn: number }) {
  const { available, busy, open, error, branch } = state;
  if (!available) return null;
  const ways = ['hand', ...(branch?.environment.references.map(({ name }) => name) ?? ['optimal'])];
  return html`<div class="row" role="group" aria-label="Branch here">
    <span class="label">Branch from before turn ${turn + 1}, play on by</span>
    <span class="seg">${ways.map(
      way =>
        html`<button key=${way} type="button" class="small" disabled=${busy} aria-keyshortcuts=${way === 'hand' ? 'b' : undefined} onClick=${() => open(turn, way)}>${way}</button>`,
    )}</span>
    ${error && html`<span class="field-error" role="alert">${error}</span>`}
  </div>`;
}

/** The branch in its lane: its steps, its board, and what can be done there. */
export function BranchLane({ state }: { readonly state: BranchState }) {
  const { branch, busy, act, close, link } = state;
  if (!branch) return null;
  const total = branch.steps.reduce((sum, { reward }) => sum + reward, 0);
  return html`<section class="panel branch" aria-label="Branch">
    <div class="panel-head"><h2>Branch before turn ${branch.turn + 1}, played by ${branch.by === 'hand' ? 'hand' : `the ${branch.by} player`}</h2>
      <span class="label" role="status">${branch.ended ? (branch.success ? 'succeeded' : 'ended without success') : busy ? 'playing …' : 'open'}, return from here ${short(total)}</span>
      <span class="row tools">${link && html`<a class="button small" href=${link}>Open in Watch</a>`}<button type="button" class="small" onClick=${close}>Close the branch</button></span></div>
    <div class="branch-body">
      <${Board} state=${branch.state} text=${branch.text} />
      <div class="stack">
        <ol class="row branch-actions">${branch.steps.map(({ name, reward }, i) => html`<li key=${i}><${Arrow} name=${name} />${name}${reward === 0 ? '' : html` <b class="number">${reward > 0 ? '+' : ''}${short(reward)}</b>`}</li>`)}</ol>
        ${branch.ended && html`<p class="chip ${branch.success ? 'good' : 'bad'}">${branch.success ? 'success' : 'no success'}</p>`}
        ${!branch.ended && branch.choices.length > 0 && html`<div class="row" role="group" aria-label="Play on by hand">${branch.choices.map(([name, action]) => html`<button key=${name} type="button" disabled=${busy} onClick=${() => act(action)}><${Arrow} name=${name} />${name}</button>`)}</div>`}
        ${!branch.ended && branch.choices.length === 0 && link && html`<p class="hint">Its actions are texts: <a href=${link}>play on in the playground</a>.</p>`}
      </div>
    </div>
  </section>`;
}
