import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Json } from '../../shared/json.ts';
import {
  type AskReply,
  type CheckpointRequest,
  checkpointProblem,
  type KeptCheckpoints,
  MAX_CHECKPOINT_REQUEST_BYTES,
  type PlayOnReply,
} from '../../shared/run-folder/requests.ts';
import type { TrajectoryRecord } from '../../shared/run-folder/run-files.ts';
import type { RunReader } from '../../site/server/reader/run-reader.ts';
import type { EpisodeReply } from '../../site/server/reader/trajectories.ts';
import { refuse } from '../../site/server/routes.ts';

/** Longest prompt and response of an asked checkpoint, in tokens; a short response gets some room. */
export const MAX_PROMPT = 8192;
const MAX_RESPONSE = 1024;
const LEAST_RESPONSE = 16;

/** A prompt to continue. */
export interface Question extends EditedPrompt {
  readonly max_tokens: number;
  /** Texts that end a response. */
  readonly stop?: readonly string[];
}

/** A checkpoint of the run in a folder: of a step, or the newest. */
export interface CheckpointChoice {
  readonly folder: string;
  readonly step?: number;
}

/** A state to play on from: that before a turn of an episode, after these actions. */
export interface PlayOnStart {
  readonly episode: TrajectoryRecord;
  readonly turn: number;
  readonly actions: readonly Json[];
}

/** Checkpoints of runs, in other processes. Takes one request at a time, and throws an Error for a second. */
export interface Checkpoints {
  kept(folder: string): KeptCheckpoints;
  ask(checkpoint: CheckpointChoice, question: Question, signal: AbortSignal): Promise<AskReply>;
  /** Plays on on the environment server of the dashboard. */
  playOn(checkpoint: CheckpointChoice, start: PlayOnStart, signal: AbortSignal): Promise<PlayOnReply>;
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

/** The routes by which pages list and ask checkpoints. To ask without the token is refused before the body is read. */
export function addCheckpointRoute(app: FastifyInstance, { reader, checkpoints, denies }: RouteParts): void {
  app.addHook('onClose', () => checkpoints.close());
  const runOf = ({ query: { id } }: { readonly query: { readonly id?: unknown } }) =>
    typeof id === 'string' ? reader.find(id) : undefined;
  app.get<{ Querystring: { readonly id?: unknown } }>('/runs/api/checkpoints', async (request, reply) => {
    const run = await runOf(request);
    if (!run) return refuse(reply, 404, 'there is no such run');
    return reply.header('cache-control', 'no-store').send(checkpoints.kept(run.path));
  });
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
      const wrong = checkpointProblem(request.body);
      if (wrong !== undefined) return refuse(reply, 400, wrong);
      const { action, file, index, turn, step, prompt, actions = [] } = request.body as CheckpointRequest;
      const run = await runOf(request);
      const found = run && (await reader.episode(run.id, file, index));
      if (!found?.episode.turns[turn]) return refuse(reply, 404, 'there is no such run, episode or turn');
      if (found.episode.format !== undefined)
        return refuse(reply, 409, `an episode of a ${found.episode.format} file has no checkpoint here`);
      const gone = new AbortController();
      reply.raw.once('close', () => gone.abort(new Error('the page has gone')));
      const checkpoint = { folder: run!.path, step };
      try {
        if (action === 'play_on') {
          const episode = found.episode as TrajectoryRecord;
          return await checkpoints.playOn(checkpoint, { episode, turn, actions }, gone.signal);
        }
        return await checkpoints.ask(checkpoint, questionAt(found, turn, prompt), gone.signal);
      } catch (error) {
        return refuse(reply, 409, (error as Error).message);
      }
    },
  );
}

/**
 * The tokens that the policy had before its response, or a changed text of them, to continue as far as it did.
 * @throws Error where the turn has no tokens, or too many before it
 */
function questionAt({ episode, texts }: EpisodeReply, at: number, prompt: string | undefined): Question {
  const { sample, tokens, finish_reason } = episode.turns[at];
  const ids = episode.samples[sample]?.token_ids ?? [];
  const [start, end] = tokens;
  if (end <= start || end > ids.length) throw new Error('the turn has no sampled tokens');
  if (start > MAX_PROMPT)
    throw new Error(`the prompt has ${start} tokens, more than ${MAX_PROMPT}: ask with ragen serve`);
  const last = finish_reason === 'length' ? undefined : texts[ids[end - 1]];
  const given = ids.slice(0, start);
  const spelled = given.map(id => texts[id] ?? '');
  return {
    ...editedPrompt(given, spelled, prompt ?? spelled.join('')),
    max_tokens: Math.min(MAX_RESPONSE, Math.max(LEAST_RESPONSE, end - start)),
    ...(last ? { stop: [last] } : {}),
  };
}

/** A prompt with a changed text in it, which is still to be encoded. */
export interface EditedPrompt {
  /** Tokens before the changed text. */
  readonly before: readonly number[];
  /** Empty where nothing is new. */
  readonly text: string;
  /** Tokens after it. */
  readonly after: readonly number[];
}

/** Most tokens of a word that are encoded again because the word changed at an end of theirs. */
const MAX_WORD = 8;

/**
 * Finds the change in a prompt. All other tokens stay as they were sampled; a word that changed is encoded as a whole.
 * @param ids the tokens of the prompt
 * @param texts the text of each
 * @param edited the prompt's text after the change, with the line ends of a text field
 */
export function editedPrompt(ids: readonly number[], texts: readonly string[], edited: string): EditedPrompt {
  const typed = withFieldLineEnds(texts);
  const text = edited.replaceAll(/\r\n?/g, '\n');
  let first = 0;
  let start = 0;
  while (first < ids.length && text.startsWith(typed[first], start)) start += typed[first++].length;
  if (first === ids.length && start === text.length) return { before: ids, text: '', after: [] };
  let last = ids.length;
  let end = text.length;
  while (last > first && end - typed[last - 1].length >= start && text.endsWith(typed[last - 1], end))
    end -= typed[--last].length;
  for (let i = 0; i < MAX_WORD && first > 0 && isInWord(text, start) && typed[first - 1] !== ''; i++)
    start -= typed[--first].length;
  for (let i = 0; i < MAX_WORD && last < ids.length && isInWord(text, end) && typed[last] !== ''; i++)
    end += typed[last++].length;
  return { before: ids.slice(0, first), text: text.slice(start, end), after: ids.slice(last) };
}

/** True if a place in a text is between two letters or digits. */
function isInWord(text: string, at: number): boolean {
  return at > 0 && at < text.length && /^[\p{L}\p{N}]{2}$/u.test(text.slice(at - 1, at + 1));
}

/** Texts of consecutive tokens as a text field has them: it knows no other line end than `\n`. */
function withFieldLineEnds(texts: readonly string[]): string[] {
  return texts.map((text, i) => {
    const rest = text.startsWith('\n') && texts[i - 1]?.endsWith('\r') ? text.slice(1) : text;
    return rest.replaceAll(/\r\n?/g, '\n');
  });
}
