import t from 'tap';
import { Random } from '../../shared/random.ts';
import { BatchSchema } from './batch-route.ts';
import {
  ChatRequestSchema,
  CompletionRequestSchema,
  DetokenizeRequestSchema,
  LoadAdapterSchema,
  TokenizeRequestSchema,
  UnloadAdapterSchema,
} from './openai/schemas.ts';
import { ADMIN, goldenFolder, startServer } from './serve.test-data.ts';

const ROUNDS = 600;
const ODD_KEYS = ['__proto__', 'constructor', 'tokens', 'unknown'];
const VALUES: readonly unknown[] = [
  null,
  true,
  false,
  0,
  -1,
  1,
  2,
  1.5,
  1e308,
  '',
  'base',
  'x',
  '\u0000\ud800',
  'é'.repeat(300),
  [],
  [0],
  [3, 4],
  [-1],
  [1e12],
  ['a', 'b'],
  [[1], [2]],
  [{}],
  {},
  { type: 'json_object' },
  { type: 'json_schema', json_schema: { schema: { type: 'object', properties: { a: { $ref: '#' } } } } },
  { type: 'json_schema', json_schema: { schema: { enum: 3 } } },
  { start: 0, states: [{ tokens: [3], next: [0] }] },
  { messages: 3, tools: '{{', bos_token: {} },
  [{ role: 'user', content: 'hi' }],
  [{ role: 'assistant', content: null }],
  [{ role: 'assistant', tool_calls: [{ function: { name: 'f', arguments: '{' } }] }],
  [{ role: 'tool', content: 'x' }],
  [{ type: 'function', function: { name: 'f', parameters: { a: [] } } }],
];
/** A good request of each route, and the schema with the keys that are changed. */
const ROUTES = [
  {
    path: '/v1/chat/completions',
    schema: ChatRequestSchema,
    good: { messages: [{ role: 'user', content: 'hi' }] },
  },
  { path: '/v1/completions', schema: CompletionRequestSchema, good: { prompt: [3, 4] } },
  {
    path: '/v1/completions/batch',
    schema: BatchSchema,
    good: { requests: [{ prompt: [3], max_tokens: 2 }] },
  },
  { path: '/tokenize', schema: TokenizeRequestSchema, good: { prompt: 'hi' } },
  { path: '/detokenize', schema: DetokenizeRequestSchema, good: { tokens: [3] } },
  {
    path: '/v1/load_lora_adapter',
    schema: LoadAdapterSchema,
    good: { lora_name: 'a', lora_path: '/nowhere' },
  },
  { path: '/v1/unload_lora_adapter', schema: UnloadAdapterSchema, good: { lora_name: 'a' } },
];

t.test('no fuzzed request gets a 5xx or a reply outside OpenAI’s form', async t => {
  const { request, models } = await startServer(t, goldenFolder('qwen3-tiny'), {
    policy: { maxSequenceLength: 64 },
  });
  const rng = Random.fromSeed(11);
  const pick = <T>(list: readonly T[]): T => list[rng.integer(list.length)];
  let accepted = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const { path, schema, good } = pick(ROUTES);
    const body: Record<string, unknown> = { ...good };
    for (let i = rng.integer(3); i > 0; i--) {
      const key = pick(rng.float() < 0.1 ? ODD_KEYS : Object.keys(schema.properties));
      Object.defineProperty(body, key, {
        value: pick(VALUES),
        enumerable: true,
        configurable: true,
        writable: true,
      });
    }
    const reply = await request('POST', path, body, { authorization: `Bearer ${ADMIN}` });
    const internal = typeof reply.body === 'string' && reply.body.includes('"status":5');
    if (reply.status < 300 && !internal) accepted++;
    else if (reply.status >= 500 || typeof reply.body.error?.message !== 'string') {
      t.fail(`${path} ${JSON.stringify(body)}: ${reply.status} ${JSON.stringify(reply.body)}`);
    }
  }
  t.ok(accepted > 100, `${accepted} were accepted`);
  t.equal(models.base.open, 0);
});
