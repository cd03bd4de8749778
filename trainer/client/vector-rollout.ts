import type { OperationInput, Request, Schemas } from './operations.ts';
import { ServerProblem } from './retry.ts';
import type { EnvServer } from './server.ts';

/** An environment, in the fields of `POST /v1/sessions`, and the number of its episodes. */
export type VectorRolloutInput = Omit<OperationInput<'create'>, 'count' | 'seed'> & {
  /** Number of concurrent episodes. */
  readonly num_envs: number;
  /** Seed of the first episode; the others get the following numbers. The server draws one when absent. */
  readonly seed?: number;
};

/** An episode that needs its next action. */
export interface OpenEpisode {
  /** Index of the episode, from 0. */
  readonly env: number;
  readonly session_id: string;
  readonly observation: Schemas['Observation'];
  /** Steps taken. */
  readonly step: number;
}

/** Result of a step in one of the episodes. */
export type EpisodeStep = Schemas['StepResult'] & { readonly env: number; readonly action: unknown };

/** One step of all episodes that have not ended, in one request. */
export interface VectorStep {
  /** Steps so far, this one included. */
  readonly step: number;
  readonly results: readonly EpisodeStep[];
  /** Episodes that continue. */
  readonly open: number;
}

/** Chooses an action, at once or as a promise; promises of several episodes are awaited together. */
export type Act = (episode: OpenEpisode) => unknown;

export interface VectorRolloutOptions {
  /** Takes the server's refusal of an episode's first state or step, which ends that episode; throw it to end all. */
  readonly onProblem?: (problem: ServerProblem, env: number) => void;
}

/**
 * Plays several episodes of an environment at once, until all have ended. Each turn takes one request. The sessions are
 * closed at the end, also when the loop is left early.
 * @throws ServerProblem, ServerUnavailable, ReplyTimeout, BadReply, ClientClosed
 *
 * @example
 * for await (const { results } of rollout(server, { env_id: 'FrozenLake-v0', num_envs: 64, seed: 1 }, () => 'Right')) {
 *   for (const { env, reward } of results) console.log(env, reward);
 * }
 */
export async function* rollout(
  server: EnvServer,
  { num_envs: count, seed, ...input }: VectorRolloutInput,
  act: Act,
  { onProblem }: VectorRolloutOptions = {},
): AsyncGenerator<VectorStep, void> {
  const requests = Array.from({ length: count }, (_, env) =>
    server.request('create', { ...input, ...(seed !== undefined && { seed: seed + env }) }),
  );
  const opened: string[] = [];
  try {
    const replies = await server.batch(requests as Request[]);
    for (const reply of replies) {
      if (!(reply instanceof Error)) opened.push((reply as Schemas['Session']).session_id);
    }
    let open = replies.flatMap((reply, env): OpenEpisode[] => {
      if (reply instanceof Error) return leftOut(reply, env, onProblem);
      const { session_id, observation } = reply as Schemas['Session'];
      return [{ env, session_id, observation, step: 0 }];
    });
    for (let step = 1; open.length > 0; step++) {
      const results = await stepAll(server, open, await Promise.all(open.map(act)), onProblem);
      open = results
        .filter(({ terminated, truncated }) => !terminated && !truncated)
        .map(({ env, session_id, observation, step: taken }) => ({
          env,
          session_id,
          observation,
          step: taken,
        }));
      yield { step, results, open: open.length };
    }
  } finally {
    const closing = opened.map(session_id => server.request('close', { session_id }) as Request);
    if (closing.length > 0) await server.batch(closing).catch(() => undefined);
  }
}

async function stepAll(
  server: EnvServer,
  open: readonly OpenEpisode[],
  actions: readonly unknown[],
  onProblem: VectorRolloutOptions['onProblem'],
): Promise<EpisodeStep[]> {
  const steps = open.map(({ session_id, step }, i) =>
    server.request('step', { session_id, action: actions[i], expected_step: step + 1 }),
  );
  const replies = await server.batch(steps as Request[]);
  return replies.flatMap((reply, i): EpisodeStep[] => {
    const { env } = open[i];
    if (reply instanceof Error) return leftOut(reply, env, onProblem);
    return [{ ...(reply as Schemas['StepResult']), env, action: actions[i] }];
  });
}

/** No episode. @throws an error that the caller does not take */
function leftOut(error: Error, env: number, onProblem: VectorRolloutOptions['onProblem']): [] {
  if (!onProblem || !(error instanceof ServerProblem)) throw error;
  onProblem(error, env);
  return [];
}
