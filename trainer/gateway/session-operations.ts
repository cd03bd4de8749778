import { ServerProblem } from '../client/errors.ts';
import { ApiError } from '../serve/openai/errors.ts';
import type { Rollout } from './rollout.ts';

/** An operation of a program on the session of its rollout; the environment server carries it out. */
export type SessionOperation = (rollout: Rollout, input: { readonly action?: unknown }) => Promise<unknown>;

/**
 * By the names of the environment server's operations.
 * @throws ApiError where the environment server refuses, or the rollout does
 */
export const SESSION_OPERATIONS = {
  get: detailOf,
  valid_actions: ({ session: { server, sessionId } }) =>
    passingProblems(() => server.call('valid_actions', { session_id: sessionId })),
  step: async (rollout, { action }) => {
    const { server, sessionId } = rollout.session;
    const result = await passingProblems(() =>
      server.call('step', { session_id: sessionId, action: action as never }),
    );
    rollout.stepped(result.step);
    return result;
  },
  reset: async rollout => {
    const detail = await detailOf(rollout);
    if (detail.step === 0) return detail;
    throw new ApiError(409, 'a rollout is one episode: it has begun and cannot be reset', {
      code: 'episode_begun',
    });
  },
} satisfies { readonly [name: string]: SessionOperation };

function detailOf({ session: { server, sessionId } }: Rollout) {
  return passingProblems(() => server.call('get', { session_id: sessionId }));
}

/** Passes problems of the environment server on to the program. */
async function passingProblems<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof ServerProblem)) throw error;
    throw new ApiError(error.status, error.problem.detail, { code: error.code });
  }
}
