import Fastify, { type FastifyInstance } from 'fastify';
import t, { type Test } from 'tap';
import { Models } from '../../serve/models.ts';
import { goldenFolder } from '../../serve/serve.test-data.ts';
import type { Generation, SamplingDistribution, SamplingSettings } from '../generation.ts';

/** Faults that engines of the field have, each of which a test turns on. */
export interface Faults {
  /** Answers with the base for every adapter. */
  ignoresAdapters?: boolean;
  /** Reports log-probabilities before the temperature, as vLLM does by default. */
  rawLogProbs?: boolean;
  /** This many loads find no folder: a network disk lags. */
  lateFolders?: number;
  /** Answers this many generations with this status. */
  failures?: number;
  status?: number;
  /** Breaks off this many generations. */
  aborts?: number;
  /** Never answers a generation. */
  hangs?: boolean;
  /** Answers with one log-probability too few. */
  short?: boolean;
  /** Was started without the routes that load adapters. */
  takesNoAdapters?: boolean;
  /** Was started without the routes that replace its weights. */
  takesNoWeights?: boolean;
  /** Refuses adapters of its rank. */
  refusesRank?: boolean;
  /** Sampling settings of the model's `generation_config.json`, which take the place of fields that are left out. */
  generationConfig?: Record<string, number>;
  /** Sampling settings that override those of a request. */
  cuts?: Record<string, number>;
}

export interface TestEngine {
  readonly url: string;
  readonly models: Models;
  readonly faults: Faults;
  /** Bodies by route, as they came. */
  readonly bodies: { readonly path: string; readonly body: Record<string, unknown> }[];
}

const GREATEST_ID = 2 ** 31;

/** Fields that vLLM and SGLang name alike. */
function distributionOf(fields: Record<string, never>): SamplingDistribution {
  return {
    temperature: fields.temperature,
    topK: Math.max(0, fields.top_k ?? 0),
    topP: fields.top_p ?? 1,
    minP: fields.min_p ?? 0,
    repetitionPenalty: fields.repetition_penalty ?? 1,
    presencePenalty: fields.presence_penalty ?? 0,
    frequencyPenalty: fields.frequency_penalty ?? 0,
    logitBias: fields.logit_bias ?? {},
    badWords: fields.bad_words ?? [],
  };
}

/** Models of closed engines, with no adapter: to open others would take longer than most tests. */
const idle: Models[] = [];
t.teardown(() => Promise.all(idle.map(models => models.close())));

async function takeModels(): Promise<Models> {
  return (
    idle.pop() ??
    (await Models.open({
      folder: goldenFolder('qwen2-tiny'),
      name: 'base',
      maxAdapters: 6,
      policy: { workers: 1, maxOpenSequences: 32, maxSequenceLength: 128 },
    }))
  );
}

async function giveBack(models: Models): Promise<void> {
  for (const { name } of models.all.slice(1)) await models.unload(name);
  idle.push(models);
}

async function openEngine(
  t: Pick<Test, 'teardown'>,
  faults: Faults,
  routes: (app: FastifyInstance, engine: TestEngine) => void,
): Promise<TestEngine> {
  const models = await takeModels();
  const app = Fastify({ forceCloseConnections: true });
  const engine = { url: '', models, faults, bodies: [] as TestEngine['bodies'] };
  app.addHook('preHandler', async ({ url, body }) => {
    engine.bodies.push({ path: url, body: (body ?? {}) as Record<string, unknown> });
  });
  routes(app, engine);
  engine.url = await app.listen({ host: '127.0.0.1', port: 0 });
  t.teardown(async () => {
    await app.close();
    await giveBack(models);
  });
  return engine;
}

/** Response of the engine to a prompt, with its faults. Undefined: it fails on purpose. */
async function sample(
  { models, faults }: TestEngine,
  name: string | undefined,
  promptIds: readonly number[],
  sampling: SamplingSettings,
  seed: number,
): Promise<Generation | undefined> {
  if (faults.hangs) await new Promise(() => {});
  if (faults.failures) {
    faults.failures--;
    return undefined;
  }
  const model = models.named(faults.ignoresAdapters ? undefined : name);
  const { signal } = new AbortController();
  const generation = await model.generate({ promptIds, sampling, seed: seed % GREATEST_ID }, signal);
  const logProbs = faults.rawLogProbs
    ? (await model.score([...promptIds, ...generation.tokenIds])).slice(promptIds.length)
    : generation.logProbs;
  return { ...generation, logProbs: faults.short ? logProbs.slice(1) : logProbs };
}

/** A server that speaks vLLM's requests and replies, token for token from a real policy. */
export function vllmEngine(t: Pick<Test, 'teardown'>, faults: Faults = {}): Promise<TestEngine> {
  return openEngine(t, faults, (app, engine) => {
    const { models } = engine;
    app.get('/v1/models', async () => ({
      object: 'list',
      data: models.all.map(({ name }) => ({ id: name })),
    }));
    app.post<{ Body: { lora_name: string; lora_path: string } }>(
      '/v1/load_lora_adapter',
      async ({ body }, reply) => {
        const { lora_name, lora_path } = body;
        if (faults.takesNoAdapters) return reply.status(404).send({ detail: 'Not Found' });
        if (faults.refusesRank) {
          const message =
            "Call to add_lora method failed: Worker failed with error 'LoRA rank 64 is greater than max_lora_rank 16.', please check the stack trace above for the root cause";
          return reply
            .status(500)
            .send({ error: { message, type: 'InternalServerError', param: null, code: 500 } });
        }
        if (faults.lateFolders) {
          faults.lateFolders--;
          const message = `Loading lora ${lora_name} failed: No adapter found for ${lora_path}`;
          return reply.status(404).send({ object: 'error', message, type: 'NotFoundError', code: 404 });
        }
        if (models.all.some(({ name }) => name === lora_name)) {
          const message = `The lora adapter '${lora_name}' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True.`;
          return reply.status(400).send({ object: 'error', message, type: 'InvalidUserInput', code: 400 });
        }
        await models.load(lora_name, lora_path);
        return `Success: LoRA adapter '${lora_name}' added successfully.`;
      },
    );
    app.post<{ Body: { lora_name: string } }>(
      '/v1/unload_lora_adapter',
      async ({ body: { lora_name } }, reply) => {
        if (!models.all.some(({ name }) => name === lora_name)) {
          const message = `The lora adapter '${lora_name}' cannot be found.`;
          return reply
            .status(404)
            .send({ error: { message, type: 'NotFoundError', param: null, code: 404 } });
        }
        await models.unload(lora_name);
        return `Success: LoRA adapter '${lora_name}' removed successfully.`;
      },
    );
    app.post<{ Body: Record<string, never> }>('/v1/completions', async ({ body }, reply) => {
      const sampling = {
        ...distributionOf({ ...faults.generationConfig, ...body, ...faults.cuts } as Record<string, never>),
        maxNewTokens: body.max_tokens,
        stopTokenIds: body.stop_token_ids,
      };
      const generation = await sample(engine, body.model, body.prompt, sampling, body.seed);
      if (generation === undefined) return reply.status(faults.status ?? 500).send('Internal Server Error');
      const { tokenIds, logProbs, finishReason } = generation;
      const tokens = Array.from(tokenIds, String);
      return {
        id: 'cmpl-1',
        object: 'text_completion',
        created: 1,
        model: body.model,
        choices: [
          {
            index: 0,
            text: tokens.join(''),
            logprobs: {
              text_offset: tokens.map(() => 0),
              token_logprobs: [...logProbs],
              tokens,
              top_logprobs: tokens.map(() => ({})),
            },
            finish_reason: finishReason === 'stop' ? 'stop' : 'length',
            stop_reason: null,
            token_ids: [...tokenIds],
            prompt_token_ids: body.prompt,
          },
        ],
        usage: {},
      };
    });
  });
}

/**
 * A server that speaks vLLM's requests and replies for whole models, as recorded from 0.32: tokens come one by one, and new weights
 * take the place of the last between two of them. `restart` brings back the weights that it was started with.
 */
export async function wholeVllmEngine(
  t: Pick<Test, 'teardown'>,
  faults: Faults = {},
): Promise<TestEngine & { restart(): void }> {
  let model: string | undefined;
  let version = 'default';
  let paused: PromiseWithResolvers<void> | undefined;
  let aborts = 0;
  let loads = 0;
  const engine = await openEngine(t, faults, (app, engine) => {
    const { models } = engine;
    app.post<{ Querystring: { mode: string } }>('/pause', async ({ query }, reply) => {
      if (faults.takesNoWeights) return reply.status(404).send({ detail: 'Not Found' });
      if (query.mode === 'abort') aborts++;
      paused ??= Promise.withResolvers();
      return { status: 'paused' };
    });
    app.post('/resume', async (_, reply) => {
      if (faults.takesNoWeights) return reply.status(404).send({ detail: 'Not Found' });
      paused?.resolve();
      paused = undefined;
      return { status: 'resumed' };
    });
    app.post<{ Body: { method: string; kwargs: { weights_path: string } } }>(
      '/collective_rpc',
      async ({ body }, reply) => {
        if (faults.lateFolders) {
          faults.lateFolders--;
          const message =
            "Call to collective_rpc method failed: Worker failed with error 'Repo id must be in the form ...'";
          return reply
            .status(500)
            .send({ error: { message, type: 'InternalServerError', param: null, code: 500 } });
        }
        const name = `whole-${++loads}`;
        await models.load(name, body.kwargs.weights_path);
        model = name;
        return { results: [null] };
      },
    );
    app.post('/reset_prefix_cache', async () => ({ success: true }));
    app.post<{ Body: { new_version: string } }>('/update_weight_version', async ({ body }) => {
      version = body.new_version;
      return { success: true, new_version: version };
    });
    app.post<{ Body: { token_ids: number[]; sampling_params: Record<string, never> } }>(
      '/inference/v1/generate',
      async ({ body }) => {
        const params = body.sampling_params;
        const begun = aborts;
        const tokens: { id: number; logprob: number }[] = [];
        const spans: { version: string; start: number; end: number }[] = [];
        let finish = 'length';
        while (tokens.length < params.max_tokens && finish === 'length') {
          // A turn of the event loop lets the routes above come between two tokens.
          await new Promise(resolve => setTimeout(resolve, 5));
          await Promise.race([paused?.promise, ...(aborts > begun ? [1] : [])]);
          if (aborts > begun) {
            finish = 'abort';
            break;
          }
          const sampling = {
            ...distributionOf(params),
            maxNewTokens: 1,
            stopTokenIds: params.stop_token_ids,
          };
          const prompt = [...body.token_ids, ...tokens.map(({ id }) => id)];
          const one = await sample(engine, model, prompt, sampling, params.seed + tokens.length);
          tokens.push({ id: one!.tokenIds[0], logprob: one!.logProbs[0] });
          if (one!.finishReason === 'stop') finish = 'stop';
          if (spans.at(-1)?.version !== version) spans.push({ version, start: tokens.length - 1, end: 0 });
          spans.at(-1)!.end = tokens.length;
        }
        return {
          request_id: 'generate-tokens-1',
          output_mode: 'tokens',
          choices: [
            {
              index: 0,
              token_ids: tokens.map(({ id }) => id),
              logprobs: {
                content: tokens.map(({ id, logprob }) => ({ token_id: id, logprob, top_logprobs: [] })),
              },
              finish_reason: finish,
              stop_reason: null,
              weight_versions: spans,
            },
          ],
        };
      },
    );
  });
  return Object.assign(engine, {
    restart: () => {
      model = undefined;
      version = 'default';
    },
  });
}

/** A server that speaks SGLang's requests and replies, as the source of 0.5.23 has them: every refusal has status 400. */
export async function sglangEngine(
  t: Pick<Test, 'teardown'>,
  faults: Faults = {},
): Promise<TestEngine & { restart(): void }> {
  let whole: string | undefined;
  const opened = await openEngine(t, faults, (app, engine) => {
    const { models } = engine;
    const refusal = (lora: string): string | undefined => {
      if (faults.takesNoAdapters) return 'LoRA is not enabled. Please set `--enable-lora` to enable LoRA.';
      if (faults.refusesRank)
        return `LoRA adapter ${lora} with rank 64 is incompatible with the current LoRA memory pool configuration.`;
      if (models.all.some(({ name }) => name === lora))
        return `Failed to load LoRA adapter ${lora} because it is already loaded`;
      if (!faults.lateFolders) return undefined;
      faults.lateFolders--;
      return "[Errno 2] No such file or directory: 'adapter_config.json'";
    };
    app.post<{ Body: { lora_name: string; lora_path: string } }>(
      '/load_lora_adapter',
      async ({ body }, reply) => {
        const error_message = refusal(body.lora_name);
        if (error_message !== undefined) return reply.status(400).send({ success: false, error_message });
        await models.load(body.lora_name, body.lora_path);
        return { success: true, error_message: null, loaded_adapters: {} };
      },
    );
    app.post<{ Body: { lora_name: string } }>('/unload_lora_adapter', async ({ body }, reply) => {
      if (!models.all.some(({ name }) => name === body.lora_name)) {
        const error_message = `LoRA with name ${body.lora_name} does not exist. Loaded LoRAs: odict_keys([])`;
        return reply.status(400).send({ success: false, error_message });
      }
      await models.unload(body.lora_name);
      return { success: true, error_message: null, loaded_adapters: {} };
    });
    app.post<{ Body: { model_path: string; weight_version: string } }>(
      '/update_weights_from_disk',
      async ({ body }, reply) => {
        if (faults.lateFolders) {
          faults.lateFolders--;
          const message = `Failed to get model config: ${body.model_path}`;
          return reply.status(400).send({ success: false, message, num_paused_requests: 0 });
        }
        const done = { success: true, message: 'Succeeded to update model weights.', num_paused_requests: 0 };
        if (whole === body.weight_version) return done;
        const last = whole;
        if (!models.all.some(({ name }) => name === body.weight_version))
          await models.load(body.weight_version, body.model_path);
        whole = body.weight_version;
        if (last !== undefined) await models.unload(last);
        return done;
      },
    );
    app.post<{ Body: Record<string, never> }>('/generate', async ({ body }, reply) => {
      const params = body.sampling_params as Record<string, never>;
      const name = body.lora_path ?? whole;
      if (faults.aborts) {
        faults.aborts--;
        const finish_reason = { type: 'abort', message: 'Abort in waiting queue' };
        return { text: '', meta_info: { id: '1', finish_reason, output_token_logprobs: [[-1, 5, null]] } };
      }
      if (name !== undefined && !models.all.some(model => model.name === name)) {
        const message = `The following requested LoRA adapters are not loaded: ${name}\nLoaded adapters: odict_keys([]).`;
        return reply.status(400).send({ error: { message } });
      }
      const sampling = {
        ...distributionOf(params),
        maxNewTokens: params.max_new_tokens,
        stopTokenIds: params.stop_token_ids,
      };
      const generation = await sample(engine, name, body.input_ids, sampling, params.sampling_seed);
      if (generation === undefined) return reply.status(faults.status ?? 500).send('Internal Server Error');
      const { tokenIds, logProbs, finishReason } = generation;
      return {
        text: '',
        meta_info: {
          id: '1',
          finish_reason:
            finishReason === 'stop'
              ? { type: 'stop', matched: 0 }
              : { type: 'length', length: tokenIds.length },
          prompt_tokens: 1,
          completion_tokens: tokenIds.length,
          weight_version: whole ?? 'default',
          output_token_logprobs: Array.from(tokenIds, (id, i) => [logProbs[i] ?? null, id, null]),
        },
      };
    });
  });
  return Object.assign(opened, {
    restart: () => {
      whole = undefined;
    },
  });
}
