import { Problem } from '../problems.ts';
import type { LiveEpisode } from './episodes/live-episode.ts';

/** A session stands before what its client saw last. */
export const rolledBack = (id: string, { id: episodeId, stepCount }: LiveEpisode): Problem =>
  new Problem(
    'session_rolled_back',
    `the server ended without warning; session ${id} was resumed at step ${stepCount} of ${episodeId}, the last that was stored`,
  );

/** Problem of the first operation on a session that ends with the server because it cannot be stored. */
export const cannotBeStored = (id: string, reason: string | undefined): Problem =>
  new Problem('session_unsaved', `session ${id} cannot be stored, and ends with this server: ${reason}`);

/** A client takes a session to be at another step than it is. */
export const wrongStep = (id: string, step: number, expected: number): Problem =>
  new Problem(
    'wrong_step',
    `session ${id} is at step ${step}, so its next step is ${step + 1}; expected_step is ${expected}`,
  );
