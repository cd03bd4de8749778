import { randomInt, randomUUID } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import Type, { type Static, type TSchema } from 'typebox';
import { MAX_TOP_LOG_PROBS } from '../../generation/generation.ts';
import { encodeSampleResponse } from '../../tinker/proto.ts';
import { badRequest } from '../openai/errors.ts';
import {
  GREATEST_INTEGER,
  hashOf,
  Id,
  MAX_TEXT,
  MaybeFlag,
  MaybeId,
  orNull,
  ownerOf,
  postRoute,
  SequenceId,
} from './requests.ts';
import type { SampleTask } from './samplers.ts';
import type { TinkerServer } from './server.ts';

/** Seeds are taken modulo this. */
const SEEDS = 2 ** 31;
const MAX_STOPS = 64;
/** Fields that the server does not support. */
const UNSUPPORTED = [
  'topk_sample_logprobs',
  'target_prompt_logprobs',
  'prompt_alt_tokens_k',
  'prompt_logprobs_last_n',
  'record_stability_info',
];

const stops = <T extends TSchema>(schema: T) => Type.Array(schema, { maxItems: MAX_STOPS });
const StopText = Type.String({ minLength: 1, maxLength: MAX_TEXT });
const Token = Type.Integer({ minimum: 0, maximum: GREATEST_INTEGER });
/** One of another type than `encoded_text` has no tokens. */
const Chunk = Type.Object({ type: orNull(Type.String()), tokens: Type.Optional(Type.Array(Token)) });
const SampleRequest = Type.Object({
  sampling_session_id: MaybeId,
  /** Numbers of copied sampling clients reach 10¹⁸, which JSON does not keep exact. */
  seq_id: orNull(Type.Integer({ minimum: 0 })),
  num_samples: orNull(Type.Integer({ minimum: 1, maximum: 256 })),
  prompt: Type.Object({ chunks: Type.Array(Chunk) }),
  /** `stop` absent: the end-of-text token stops; `[]`: nothing stops. `top_k` −1 and `top_p` 1 are off. */
  sampling_params: Type.Object({
    max_tokens: orNull(Type.Integer({ minimum: 1 })),
    seed: orNull(Type.Integer()),
    stop: orNull(Type.Union([StopText, stops(StopText), stops(Type.Integer({ minimum: 0 }))])),
    temperature: orNull(Type.Number({ minimum: 0, maximum: 100 })),
    top_k: orNull(Type.Integer({ minimum: -1 })),
    top_p: orNull(Type.Number({ exclusiveMinimum: 0, maximum: 1 })),
  }),
  prompt_logprobs: MaybeFlag,
  topk_prompt_logprobs: orNull(Type.Integer({ minimum: 0 })),
});

/** Sampling sessions and `asample`. */
export function samplingRoutes(app: FastifyInstance, server: TinkerServer): void {
  const number = { session_id: Id, sampling_session_seq_id: SequenceId };
  const NewSampler = Type.Object({ ...number, base_model: MaybeId, model_path: MaybeId });
  postRoute(app, '/create_sampling_session', NewSampler, async (body, owner) => {
    const session = server.session(body.session_id, owner);
    const { model_path: path = null, base_model: base, sampling_session_seq_id: number } = body;
    if (path === null && !base) throw badRequest('send base_model or model_path', 'base_model');
    if (base) server.checkBase(base);
    const checkpoint = path === null ? undefined : await server.checkpoints.find(path, owner);
    const adapter = checkpoint ? server.checkpoints.adapterOf(checkpoint, server.base.config) : null;
    const sampler = { content: hashOf(body), path, checkpoint, weights: async () => adapter };
    return { sampling_session_id: server.addSampler(session, number, sampler).id };
  });
  app.get<{ Params: { id: string } }>('/samplers/:id', async request => {
    const { id: sampler_id, path } = server.sampler(request.params.id, ownerOf(request)).sampler;
    return { sampler_id, base_model: server.name, ...(path ? { model_path: path } : {}) };
  });
  postRoute(app, '/asample', SampleRequest, async (body, owner) => {
    const { sampling_session_id: id, seq_id: number } = body;
    if (!id) {
      const fault = 'sampling_session_id is missing: create one with create_sampling_session';
      throw badRequest(fault, 'sampling_session_id');
    }
    const { session, sampler } = server.sampler(id, owner);
    if (sampler.checkpoint) await server.checkpoints.folderOf(sampler.checkpoint);
    const task = sampleTask(body, server);
    const sample = () => {
      const leave = session.samples.take();
      const work = sampler
        .weights()
        .then(weights => server.samplers.sample(weights, task, session.ended.signal));
      return work.then(encodeSampleResponse).finally(leave);
    };
    // Numbers of samplers that were copied between processes are too large for JSON to keep exact.
    const known = Number.isSafeInteger(number) ? number : randomUUID();
    const conflict = `seq_id ${number} was used for another sample`;
    const submission = { id: `${id}:${known}`, content: hashOf(body), conflict };
    const request_id = server.futures.submit(session, submission, sample);
    const sample_sequence_ids = Array.from({ length: task.samples }, (_, i) => `${id}:${number}:${i}`);
    return { request_id, sample_sequence_ids };
  });
}

/** @throws ApiError 400 naming the field */
function sampleTask(body: Static<typeof SampleRequest>, server: TinkerServer): SampleTask {
  const { prompt, sampling_params: given, num_samples, prompt_logprobs, topk_prompt_logprobs: top } = body;
  const unsupported = UNSUPPORTED.find(field => (body as Record<string, unknown>)[field]);
  if (unsupported) throw badRequest(`${unsupported} is not supported: leave it out`, unsupported);
  const tokens = prompt.chunks.flatMap(({ type, tokens: own }, i) => {
    if (own !== undefined && (type ?? 'encoded_text') === 'encoded_text') return own;
    const fault = `prompt.chunks[${i}] is ${JSON.stringify(type)}`;
    throw badRequest(`${fault}; only encoded_text is sampled from`, 'prompt');
  });
  const { maxSequenceLength: maxLength, vocabularySize } = server.base;
  if (tokens.length === 0 || tokens.length >= maxLength) {
    throw badRequest(`the prompt has ${tokens.length} tokens; it must have 1 to ${maxLength - 1}`, 'prompt');
  }
  const bad = tokens.find(id => id >= vocabularySize);
  if (bad !== undefined) {
    throw badRequest(`the prompt has token ${bad}; the vocabulary has ${vocabularySize}`, 'prompt');
  }
  if ((top ?? 0) > MAX_TOP_LOG_PROBS) {
    const fault = `topk_prompt_logprobs is ${top}; it can be 0 to ${MAX_TOP_LOG_PROBS}`;
    throw badRequest(fault, 'topk_prompt_logprobs');
  }
  const { stop, seed, max_tokens, temperature, top_k, top_p } = given;
  const stops = typeof stop === 'string' ? [stop] : stop;
  const stopStrings = stops?.filter(one => typeof one === 'string');
  return {
    prompt: Int32Array.from(tokens),
    samples: num_samples ?? 1,
    seed: seed == null ? randomInt(SEEDS) : ((seed % SEEDS) + SEEDS) % SEEDS,
    sampling: {
      temperature: temperature ?? 1,
      topK: Math.max(top_k ?? 0, 0),
      topP: top_p ?? 1,
      maxNewTokens: Math.min(max_tokens ?? maxLength, maxLength),
      stopTokenIds: stops ? stops.filter(one => typeof one === 'number') : server.stopTokenIds,
      ...(stopStrings?.length ? { stopStrings } : {}),
    },
    promptLogProbs: prompt_logprobs === true,
    topPromptLogProbs: top ?? 0,
  };
}
