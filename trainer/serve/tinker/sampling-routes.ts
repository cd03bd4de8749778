import { randomInt } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { MAX_TOP_LOG_PROBS, type SamplingSettings } from '../../generation/generation.ts';
import { encodeSampleResponse } from '../../tinker/proto.ts';
import * as wire from '../../tinker/wire.ts';
import { badRequest } from '../openai/errors.ts';
import { bodyParser } from '../openai/parse.ts';
import type { SampleTask } from './samplers.ts';
import { hashOf, ownerOf, type TinkerServer } from './server.ts';

/** Samples of a sampler that are remembered, for those that are submitted again. */
const MAX_REMEMBERED = 4096;
/** Seeds are taken modulo this. */
const SEEDS = 2 ** 31;

const parse = {
  createSampler: bodyParser(wire.CreateSamplingSessionRequest, () => {}),
  sample: bodyParser(wire.SampleRequest, body => {
    for (const field of wire.UNSUPPORTED_SAMPLE_FIELDS) {
      if (body[field]) throw badRequest(`${field} is not supported: leave it out`, field);
    }
  }),
};

/** Sampling sessions and `asample`. */
export function samplingRoutes(app: FastifyInstance, server: TinkerServer): void {
  app.post('/create_sampling_session', async (request): Promise<wire.SamplingSessionResult> => {
    const body = parse.createSampler(request.body);
    const owner = ownerOf(request);
    const session = server.session(body.session_id, owner);
    const { model_path: path = null, base_model: base } = body;
    if (path === null && !base) throw badRequest('send base_model or model_path', 'base_model');
    if (base) server.checkBase(base);
    const checkpoint = path === null ? undefined : await server.checkpoints.find(path, owner);
    const adapter = checkpoint ? server.adapterOf(checkpoint) : null;
    const sampler = { fingerprint: hashOf(body), path, checkpoint, weights: async () => adapter };
    return { sampling_session_id: server.addSampler(session, body.sampling_session_seq_id, sampler).id };
  });
  app.get<{ Params: { id: string } }>('/samplers/:id', async request => {
    const { sampler } = server.sampler(request.params.id, ownerOf(request));
    return {
      sampler_id: sampler.id,
      base_model: server.name,
      ...(sampler.path ? { model_path: sampler.path } : {}),
    };
  });
  app.post('/asample', async (request): Promise<wire.FutureReply> => {
    const body = parse.sample(request.body);
    const { sampling_session_id: id, seq_id: number } = body;
    if (!id)
      throw badRequest(
        'sampling_session_id is missing: create one with create_sampling_session',
        'sampling_session_id',
      );
    const { session, sampler } = server.sampler(id, ownerOf(request));
    if (sampler.checkpoint) await server.foldersOf(sampler.checkpoint);
    const task = sampleTask(body, server);
    const fingerprint = hashOf(body);
    const sample_sequence_ids = Array.from({ length: task.samples }, (_, i) => `${id}:${number}:${i}`);
    // Numbers of samplers that were copied between processes are larger than what JSON keeps apart.
    const known = Number.isSafeInteger(number) ? sampler.submitted.get(number as number) : undefined;
    if (known?.fingerprint === fingerprint && server.futures.has(known.requestId)) {
      return { request_id: known.requestId, sample_sequence_ids };
    }
    if (known && known.fingerprint !== fingerprint) {
      throw badRequest(`seq_id ${number} was used for another sample`, 'seq_id');
    }
    const leave = server.enterSample(session);
    const work = sampler
      .weights()
      .then(weights => server.samplers.sample(weights, task, session.ended.signal))
      .then(encodeSampleResponse)
      .finally(leave);
    const requestId = server.futures.add(session, work);
    if (typeof number === 'number') sampler.submitted.set(number, { fingerprint, requestId });
    if (sampler.submitted.size > MAX_REMEMBERED)
      sampler.submitted.delete(sampler.submitted.keys().next().value!);
    return { request_id: requestId, sample_sequence_ids };
  });
}

/** @throws ApiError 400 naming the field */
function sampleTask(body: wire.SampleRequest, server: TinkerServer): SampleTask {
  const { prompt, sampling_params: given, num_samples, prompt_logprobs, topk_prompt_logprobs: top } = body;
  const tokens = prompt.chunks.flatMap(({ type, tokens: own }, i) => {
    if (own !== undefined && (type ?? 'encoded_text') === 'encoded_text') return own;
    throw badRequest(
      `prompt.chunks[${i}] is ${JSON.stringify(type)}; only encoded_text is sampled from`,
      'prompt',
    );
  });
  const { maxLength, vocabularySize } = server;
  if (tokens.length === 0 || tokens.length >= maxLength) {
    throw badRequest(`the prompt has ${tokens.length} tokens; it must have 1 to ${maxLength - 1}`, 'prompt');
  }
  const bad = tokens.find(id => id >= vocabularySize);
  if (bad !== undefined)
    throw badRequest(`the prompt has token ${bad}; the vocabulary has ${vocabularySize}`, 'prompt');
  if ((top ?? 0) > MAX_TOP_LOG_PROBS) {
    throw badRequest(
      `topk_prompt_logprobs is ${top}; it can be 0 to ${MAX_TOP_LOG_PROBS}`,
      'topk_prompt_logprobs',
    );
  }
  const { stop, seed, max_tokens, temperature, top_k, top_p } = given;
  const stops = typeof stop === 'string' ? [stop] : stop;
  const texts = stops?.filter(one => typeof one === 'string');
  const sampling: SamplingSettings = {
    temperature: temperature ?? 1,
    topK: Math.max(top_k ?? 0, 0),
    topP: top_p ?? 1,
    maxNewTokens: Math.min(max_tokens ?? maxLength, maxLength),
    stopTokenIds: stops ? stops.filter(one => typeof one === 'number') : server.stopTokenIds,
    ...(texts?.length ? { stopStrings: texts } : {}),
  };
  return {
    prompt: Int32Array.from(tokens),
    samples: num_samples ?? 1,
    seed: seed == null ? randomInt(SEEDS) : ((seed % SEEDS) + SEEDS) % SEEDS,
    sampling,
    promptLogProbs: prompt_logprobs === true,
    topPromptLogProbs: top ?? 0,
  };
}
