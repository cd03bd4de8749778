import { type Client, RequestFailed, sessionPath } from '../client/client.ts';
import type { Schemas, Session, SessionDetail, TrajectoryRecord } from '../client/wire.ts';

/** Group of the sessions that films are made in, so that lists can leave them out. */
export const FILM_GROUP = 'playground-film';
/** Steps played in one request. */
const REEL = 16;

/** Pictures of an episode, made by playing it again in a session of the page's own: the one that is watched stays as it is. */
export class ReplayFrames {
  readonly #client: Client;
  readonly #watched: SessionDetail;
  readonly #frames: string[] = [];
  #sessionId: string | undefined;
  #tail: Promise<unknown> = Promise.resolve();

  constructor(client: Client, watched: SessionDetail) {
    this.#client = client;
    this.#watched = watched;
  }

  /**
   * The picture after a step, as a data URL.
   * @param records the episode, at least up to that step
   * @throws Error when the episode comes out differently
   */
  frame(step: number, records: readonly TrajectoryRecord[]): Promise<string> {
    const done = this.#tail.then(async () => {
      if (this.#sessionId === undefined) await this.#open();
      while (this.#frames.length <= step) await this.#shoot(records);
      return this.#frames[step];
    });
    this.#tail = done.catch(() => this.close());
    return done;
  }

  async #open(): Promise<void> {
    const { env_id, config, wrappers, options, seed, observation_format } = this.#watched;
    const { session_id } = await this.#client.json<Session>('POST', 'v1/sessions', {
      body: {
        env_id,
        config,
        wrappers,
        options,
        observation_format,
        group_id: FILM_GROUP,
        ...(seed !== null && { seed }),
      },
      quiet: true,
    });
    this.#sessionId = session_id;
    const [first] = await this.#client.batch([this.#render(session_id)]);
    this.#frames.push(pictureOf(first));
  }

  async #shoot(records: readonly TrajectoryRecord[]): Promise<void> {
    const session_id = this.#sessionId!;
    const reel = records.slice(this.#frames.length, this.#frames.length + REEL);
    const replies = await this.#client.batch(
      reel.flatMap(({ action }) => [{ op: 'step' as const, session_id, action }, this.#render(session_id)]),
    );
    for (const [index, record] of reel.entries()) {
      const { observation } = resultOf<Schemas['StepResult']>(replies[2 * index]);
      if (JSON.stringify(observation) !== JSON.stringify(record.observation)) {
        throw new Error('Played again, the episode comes out differently: there are no pictures of it.');
      }
      this.#frames.push(pictureOf(replies[2 * index + 1]));
    }
  }

  #render(session_id: string) {
    return { op: 'render' as const, session_id, mode: 'png' };
  }

  /** Ends its session; another one is opened when a picture is asked for. */
  close(): void {
    const id = this.#sessionId;
    this.#sessionId = undefined;
    this.#frames.length = 0;
    if (id === undefined) return;
    // Nobody waits for it, and the session would expire anyway.
    this.#client.json('DELETE', sessionPath(id), { quiet: true, keepalive: true }).catch(() => {});
  }
}

function resultOf<T>(reply: Schemas['BatchReply']): T {
  if ('error' in reply) throw new RequestFailed(reply.error);
  return (reply as { result: unknown }).result as T;
}

function pictureOf(reply: Schemas['BatchReply']): string {
  return `data:image/png;base64,${resultOf<Schemas['Rendering']>(reply).png}`;
}
