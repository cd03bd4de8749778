import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Json } from '../../../shared/json.ts';
import { textOf } from '../../components/fields.ts';
import { html } from '../../components/html.ts';
import { ProblemNote } from '../../components/request.ts';
import { Store, useStore, useUniqueId } from '../../components/store.ts';
import { formatNumber, formatValue, namedAction } from '../../player/format.ts';
import { moveOf, totalReward } from '../../player/session-state.ts';
import { BoardPlace, Figures, InfoBox, ObservationText, Transcript } from '../../player/situation.ts';
import type { Environment, Replay } from '../../player/wire.ts';
import { type Address, formatAddress, type PlayAddress } from '../address.ts';
import { type Client, sessionPath } from '../client/client.ts';
import { SessionFeed } from '../client/session-feed.ts';

const PACE_MS = 600;
/** Milliseconds between two requests for new steps. */
const LOOK_MS = 700;
/** Characters of an address that browsers open; Firefox refuses more than a mebibyte. */
const MAX_ADDRESS = 1_000_000;

type ReplayRecord = Replay['records'][number];

/** A session as far as it was read. */
interface Followed {
  readonly session?: Replay['session'];
  readonly environment?: Environment;
  readonly records: readonly ReplayRecord[];
  readonly problem?: unknown;
}

/** Reads a session, and its new steps as they come; also for a minute after its end. */
class Follower {
  readonly #client: Client;
  readonly #sessionId: string;
  readonly #feed: SessionFeed;
  readonly store = new Store<Followed, Partial<Followed>>((state, change) => ({ ...state, ...change }), {
    records: [],
  });
  #isLooking = false;
  #again = false;
  #isStopped = false;

  constructor(client: Client, sessionId: string) {
    this.#client = client;
    this.#sessionId = sessionId;
    this.#feed = new SessionFeed(
      client,
      cards => {
        const card = cards.find(({ session_id: id }) => id === sessionId);
        const { episode_id: episode, step, ended } = this.store.state.session ?? {};
        if (card && (card.episode_id !== episode || card.step !== step || card.ended !== ended)) this.#look();
      },
      () => {},
    );
  }

  async start(): Promise<void> {
    await this.#look();
    const { env_id, group_id, ended } = this.store.state.session ?? {};
    if (!this.#isStopped && ended === null) this.#feed.start({ env_id, group_id: group_id ?? undefined });
  }

  stop(): void {
    this.#isStopped = true;
    this.#feed.stop();
  }

  /** Requests new steps; one request at a time, with a pause after it. */
  async #look(): Promise<void> {
    if (this.#isLooking) {
      this.#again = true;
      return;
    }
    this.#isLooking = true;
    try {
      this.store.dispatch({ ...(await this.#read()), problem: undefined });
    } catch (problem) {
      this.store.dispatch({ problem });
    }
    setTimeout(() => {
      this.#isLooking = false;
      if (!this.#again || this.#isStopped) return;
      this.#again = false;
      this.#look();
    }, LOOK_MS);
  }

  async #read(): Promise<Followed> {
    const known = this.store.state;
    let records = [...known.records];
    let replay = await this.#ask(records.length === 0 ? 0 : records.at(-1)!.step + 1);
    if (known.session && replay.session.episode_id !== known.session.episode_id) {
      records = [];
      replay = await this.#ask(0);
    }
    const { session } = replay;
    const environment =
      known.environment ??
      (await this.#client.run<Environment>('get_environment', { env_id: session.env_id }));
    records.push(...replay.records);
    while (replay.next !== null) {
      replay = await this.#ask(replay.next);
      records.push(...replay.records);
    }
    return { session, environment, records };
  }

  #ask(from: number): Promise<Replay> {
    return this.#client.json('GET', `${sessionPath(this.#sessionId, 'replay')}?from=${from}`, {
      quiet: true,
    });
  }
}

interface SessionReplayProps {
  readonly client: Client;
  readonly sessionId: string;
  /** A new one reads the session again. */
  readonly address: Address;
}

/** One session step by step: live while it is played, or through its past. */
export function SessionReplay({ client, sessionId, address }: SessionReplayProps) {
  const id = useUniqueId();
  const follower = useMemo(() => new Follower(client, sessionId), [address]);
  const { session, environment, records, problem } = useStore(follower.store);
  const [position, setPosition] = useState(0);
  const [isFollowing, follow] = useState(true);
  const [isRunning, run] = useState(false);
  const last = Math.max(0, records.length - 1);
  const shown = isFollowing ? last : Math.min(position, last);
  useEffect(() => {
    void follower.start();
    return () => follower.stop();
  }, [follower]);
  useEffect(() => {
    if (!isRunning) return undefined;
    if (shown >= last) {
      run(false);
      return undefined;
    }
    const timer = setTimeout(() => setPosition(shown + 1), PACE_MS);
    return () => clearTimeout(timer);
  }, [isRunning, shown]);
  /** Moves to the chosen step, and stays there. */
  const choose = (to: number) => {
    run(false);
    follow(false);
    setPosition(Math.max(0, Math.min(to, last)));
  };
  const followLive = (event: Event) => {
    setPosition(shown);
    follow((event.currentTarget as HTMLInputElement).checked);
  };
  const toggleRun = () => {
    if (isRunning) return run(false);
    follow(false);
    setPosition(shown >= last ? 0 : shown);
    run(true);
  };
  const record = environment && records[shown];
  const named = record && namedAction(environment, record.action);
  const moves = useMemo(
    () =>
      environment
        ? records
            .slice(1, shown + 1)
            .map(moveOf)
            .map(move => ({ ...move, action: namedAction(environment, move.action) }))
        : [],
    [environment, records, shown],
  );
  const isStart = shown === 0;
  const situation = record && {
    ...record,
    action: isStart ? undefined : named,
    steps: session!.max_episode_steps,
    seed: session!.seed,
    totalReward: totalReward({ moves }),
  };
  const place = isStart
    ? 'the start'
    : record && `${shown} of ${last}: ${formatValue(named)}, reward ${formatNumber(record.reward ?? 0)}`;
  const button = (text: string, to: number) =>
    html`<button type="button" onClick=${() => choose(to)}>${text}</button>`;
  return html`<section class="stack replay" aria-label="Session">
    <p><a href=${formatAddress({ view: 'watch' })}>← All sessions</a></p>
    <h1 tabindex="-1">${environment?.title ?? 'Session'}</h1>
    <p class="fine">${environment && html`<code>${environment.env_id}</code> session <code>${sessionId}</code>`}</p>
    <${ProblemNote} problem=${problem} />
    ${
      (session || !problem) &&
      html`<div class="stack columns">
      <div class="panel play">
        ${situation && html`<${Figures} situation=${situation} /><${BoardPlace} situation=${situation} />`}
        <div class="pair slider"><label for="${id}-step">Step</label>
          <input id="${id}-step" type="range" class="grow" min="0" max=${last} step="1" value=${shown} aria-valuetext=${place}
            onInput=${(event: Event) => choose(Number(textOf(event)))} /></div>
        <div class="row turns" role="group" aria-label="Replay">
          ${button('First', 0)}${button('Back', shown - 1)}
          <button type="button" onClick=${toggleRun}>${isRunning ? 'Stop' : 'Replay'}</button>
          ${button('Next', shown + 1)}${button('Last', last)}
          <span class="check"><input id="${id}-follow" type="checkbox" checked=${isFollowing}
            onChange=${followLive} />
            <label for="${id}-follow">Follow live</label></span>
          ${record && html`<${PlayOn} address=${formatAddress(carriedOver(session!, records.slice(1, shown + 1)))} />`}
        </div>
      </div>
      <div class="stack side">
        <section class="panel" aria-label="Action"><h2>Action</h2>
          <pre tabindex="0" role="region" aria-label="Action in full">${isStart ? 'The start.' : named !== undefined && formatValue(named, 2)}</pre></section>
        <section class="panel" aria-labelledby="replay-steps">
          <div class="panel-head"><h2 id="replay-steps">Steps up to here</h2></div><${Transcript} moves=${moves} /></section>
        ${situation && html`<${ObservationText} situation=${situation} /><${InfoBox} situation=${situation} />`}
      </div>
    </div>`
    }
  </section>`;
}

/** A link to the visitor's own session, or why there is none. */
export function PlayOn({ address }: { address: string }) {
  return address.length <= MAX_ADDRESS
    ? html`<a class="button primary" href=${address}>Play on from here</a>`
    : html`<p class="fine">To play on from here, choose an earlier step: the actions are too long for an address.</p>`;
}

/** The address that opens a session of the visitor's in the shown state. */
function carriedOver(
  { env_id, config, wrappers, options, seed, dynamics_seed, reseeds }: Replay['session'],
  taken: readonly ReplayRecord[],
): PlayAddress {
  return {
    view: 'play',
    envId: env_id,
    seed: seed ?? undefined,
    config: config as PlayAddress['config'],
    wrappers: wrappers as unknown as Json[],
    options: options as PlayAddress['options'],
    dynamicsSeed: dynamics_seed,
    reseeds: reseeds?.filter(({ step }) => step <= taken.length),
    actions: taken.map(({ action }) => action as Json),
  };
}
