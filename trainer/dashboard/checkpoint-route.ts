import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import {
  type AskReply,
  type CheckpointRequest,
  checkpointProblem,
  MAX_CHECKPOINT_REQUEST_BYTES,
  type PlayOnReply,
} from '../../shared/run-folder/checkpoint-request.ts';
import type { TrajectoryRecord } from '../../shared/run-folder/run-files.ts';
import type { RunReader } from '../../site/server/reader/run-reader.ts';
import type { EpisodeReply } from '../../site/server/reader/trajectories.ts';

/** Longest prompt and response of an asked checkpoint, in tokens; a short response gets some room. */
const MAX_PROMPT = 8192;
const MAX_RESPONSE = 1024;
const LEAST_RESPONSE = 16;

/** Tokens to continue. */
export interface Question {
  readonly prompt: readonly number[];
  readonly max_tokens: number;
  /** Texts that end a response. */
  readonly stop?: readonly string[];
}

/** Newest checkpoints of runs, in other processes. Takes one request at a time, and throws an Error for a second. */
export interface Checkpoints {
  ask(folder: string, question: Question, signal: AbortSignal): Promise<AskReply>;
  /** Plays on from before a turn on the environment server of the dashboard. */
  playOn(folder: string, episode: TrajectoryRecord, turn: number, signal: AbortSignal): Promise<PlayOnReply>;
  /** Ends the processes. */
  close(): Promise<void>;
}

interface RouteParts {
  readonly reader: RunReader;
  readonly checkpoints: Checkpoints;
  /** Returns why a request is denied; undefined if it is not. */
  readonly denies: (
    request: FastifyRequest,
  ) => { readonly status: number; readonly detail: string } | undefined;
}

/** The route by which pages ask checkpoints. A request without the token is refused before its body is read. */
export function addCheckpointRoute(app: FastifyInstance, { reader, checkpoints, denies }: RouteParts): void {
  app.addHook('onClose', () => checkpoints.close());
  app.post<{ Querystring: { readonly id?: unknown } }>(
    '/runs/api/checkpoint',
    {
      bodyLimit: MAX_CHECKPOINT_REQUEST_BYTES,
      onRequest: async (request, reply) => {
        const denied = denies(request);
        if (denied) return refuse(reply, denied.status, denied.detail);
      },
    },
    async (request, reply) => {
      const { id } = request.query;
      const wrong = checkpointProblem(request.body);
      if (wrong !== undefined) return refuse(reply, 400, wrong);
      const { action, file, index, turn } = request.body as CheckpointRequest;
      const run = typeof id === 'string' ? await reader.find(id) : undefined;
      const found = run && (await reader.episode(run.id, file, index));
      if (!found?.episode.turns[turn]) return refuse(reply, 404, 'there is no such run, episode or turn');
      if (found.episode.format !== undefined)
        return refuse(reply, 409, `an episode of a ${found.episode.format} file has no checkpoint here`);
      const gone = new AbortController();
      reply.raw.once('close', () => gone.abort(new Error('the page has gone')));
      try {
        if (action === 'play_on')
          return await checkpoints.playOn(run!.path, found.episode as TrajectoryRecord, turn, gone.signal);
        return await checkpoints.ask(run!.path, questionAt(found, turn), gone.signal);
      } catch (error) {
        return refuse(reply, 409, (error as Error).message);
      }
    },
  );
}

/**
 * The tokens that the policy had before its response, to continue as far as it did.
 * @throws Error where the turn has no tokens, or too many before it
 */
function questionAt({ episode, texts }: EpisodeReply, at: number): Question {
  const { sample, tokens, finish_reason } = episode.turns[at];
  const ids = episode.samples[sample]?.token_ids ?? [];
  const [start, end] = tokens;
  if (end <= start || end > ids.length) throw new Error('the turn has no sampled tokens');
  if (start > MAX_PROMPT)
    throw new Error(`the prompt has ${start} tokens, more than ${MAX_PROMPT}: ask with ragen serve`);
  const last = finish_reason === 'length' ? undefined : texts[ids[end - 1]];
  return {
    prompt: ids.slice(0, start),
    max_tokens: Math.min(MAX_RESPONSE, Math.max(LEAST_RESPONSE, end - start)),
    ...(last ? { stop: [last] } : {}),
  };
}

const refuse = (reply: FastifyReply, status: number, detail: string) =>
  reply
    .code(status)
    .type('application/problem+json')
    .send(JSON.stringify({ title: 'Refused', status, detail }));
