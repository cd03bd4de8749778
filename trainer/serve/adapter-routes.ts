import type { FastifyInstance } from 'fastify';
import type { Access } from './access.ts';
import type { Models } from './models.ts';
import { badRequest } from './openai/errors.ts';
import { bodyParser } from './openai/parse.ts';
import { LoadAdapterSchema, UnloadAdapterSchema } from './openai/schemas.ts';
import type { ServedModel } from './served-model.ts';

const parseLoad = bodyParser(LoadAdapterSchema);
const parseUnload = bodyParser(UnloadAdapterSchema);

/**
 * `GET /v1/models`, and vLLM's routes that load and unload adapters, which want the admin token.
 * @param onUnload called with each name that is gone
 */
export function adapterRoutes(
  app: FastifyInstance,
  models: Models,
  access: Access,
  onUnload: (name: string) => void,
): void {
  app.get('/v1/models', async () => ({
    object: 'list',
    data: models.all.map(model => describe(model, models.base)),
  }));
  app.get<{ Params: { '*': string } }>('/v1/models/*', async ({ params }) =>
    describe(models.named(params['*']), models.base),
  );
  app.post('/v1/load_lora_adapter', async (request, reply) => {
    access.admin(request.headers.authorization);
    const { lora_name, lora_path, load_inplace } = parseLoad(request.body);
    if (load_inplace) {
      throw badRequest('load_inplace is not supported: load each version under its own name', 'load_inplace');
    }
    await models.load(lora_name, lora_path);
    return reply.type('text/plain').send(`Success: LoRA adapter '${lora_name}' added successfully.`);
  });
  app.post('/v1/unload_lora_adapter', async (request, reply) => {
    access.admin(request.headers.authorization);
    const { lora_name } = parseUnload(request.body);
    await models.unload(lora_name);
    onUnload(lora_name);
    return reply.type('text/plain').send(`Success: LoRA adapter '${lora_name}' removed successfully.`);
  });
}

function describe(model: ServedModel, base: ServedModel): object {
  return {
    id: model.name,
    object: 'model',
    created: model.created,
    owned_by: 'ragen',
    root: model.folder,
    parent: model === base ? null : base.name,
    max_model_len: model.maxSequenceLength,
  };
}
