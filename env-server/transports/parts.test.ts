import { PNG } from 'pngjs';
import t from 'tap';
import type { Json } from '../../shared/json.ts';
import { isProblem, testApp } from '../../test/app.test-data.ts';
import { dial, listening } from '../../test/wire.test-data.ts';

/** Size of a PNG in base64. */
function sizeOf(data: unknown): [number, number] {
  const { width, height } = PNG.sync.read(Buffer.from(String(data), 'base64'));
  return [width, height];
}

const lake = (more: { [key: string]: Json } = {}) => ({ env_id: 'FrozenLake-v0', seed: 1, ...more });
const sized = (size: number, format = 'parts') => ({
  wrappers: [{ name: 'observation_format', options: { format, size } }],
});

t.test('parts over REST: text, and a picture with its size', async t => {
  const { ask } = await testApp(t);
  const { body } = await ask('POST', '/v1/sessions', lake({ observation_format: 'parts' }));
  const [text, image] = body.observation as unknown as { [key: string]: unknown }[];
  t.match(text, { type: 'text', text: /[_P]{4}\n/ });
  t.match(image, { type: 'image', mime: 'image/png', width: Number, height: Number });
  t.same(sizeOf(image.data), [image.width, image.height]);
  const step = await ask('POST', `/v1/sessions/${body.session_id}/step`, { action: 'Right' });
  t.match(step.body.observation, [{ type: 'text' }, { type: 'image' }]);
  const { observation: lines } = (
    await ask('POST', '/v1/sessions', lake({ env_id: 'Bandit-v0', observation_format: 'parts' }))
  ).body;
  t.match(lines, [{ type: 'text' }]);
  t.equal((lines as unknown as unknown[]).length, 1, 'an environment without pictures has text');
});

t.test('a picture in the text is the only one, in its place', async t => {
  const { ask } = await testApp(t);
  const seen = async (more: { [key: string]: Json }) =>
    (await ask('POST', '/v1/sessions', lake({ config: { observation_format: 'image' }, ...more }))).body
      .observation as unknown as { type: string; text: string }[];
  t.same(
    (await seen({ observation_format: 'parts' })).map(({ type }) => type),
    ['image'],
  );
  const withList = await seen({ wrappers: [sized(64).wrappers[0], { name: 'observe_valid_actions' }] });
  t.match(withList, [
    { type: 'image', width: 64, height: 64 },
    { type: 'text', text: /^Valid actions: / },
  ]);
  const inText = await seen({ observation_format: 'parts', wrappers: [{ name: 'observe_valid_actions' }] });
  t.match(inText, [{ type: 'image' }, { type: 'text', text: /^Valid actions: / }]);
});

t.test('pictures have the size that was requested, within bounds', async t => {
  const { ask } = await testApp(t);
  const { body } = await ask('POST', '/v1/sessions', lake(sized(96)));
  t.match(body.observation, [{ type: 'text' }, { type: 'image', width: 96, height: 96 }]);
  const url = (await ask('POST', '/v1/sessions', lake(sized(48, 'image')))).body.observation;
  t.same(sizeOf(String(url).split(',')[1]), [48, 48]);
  for (const size of [16, 1024]) {
    const item = { op: 'render', session_id: String(body.session_id), mode: 'png', size };
    const { body: reply } = await ask('POST', '/v1/batch', { items: [item] });
    const [{ result }] = reply.results as unknown as { result: { png: string } }[];
    t.same(sizeOf(result.png), [size, size]);
  }
  isProblem(
    t,
    await ask('GET', `/v1/sessions/${body.session_id}/render?mode=png&size=1025`),
    'invalid_request',
  );
  isProblem(t, await ask('POST', '/v1/sessions', lake(sized(5000))), 'invalid_request');
  isProblem(t, await ask('POST', '/v1/sessions', lake(sized(64, 'grid'))), 'invalid_request');
});

t.test('earlier turns of the history are parts, too', async t => {
  const { ask } = await testApp(t);
  const { body } = await ask(
    'POST',
    '/v1/sessions',
    lake({ wrappers: [sized(32).wrappers[0], { name: 'history' }] }),
  );
  const step = await ask('POST', `/v1/sessions/${body.session_id}/step`, { action: 'Right' });
  t.match(step.body.observation, [
    { type: 'text' },
    { type: 'image' },
    { type: 'text', text: 'Action: Right\nReward: 0' },
    { type: 'text' },
    { type: 'image', width: 32 },
  ]);
});

t.test('parts over WebSocket, MCP, ORS and OpenEnv', async t => {
  const app = await listening(t);
  const wire = await dial(t, app, '/v1/ws');
  wire.send({ id: 1, op: 'create', ...lake(sized(32)) });
  const { result } = await wire.next();
  const id = String(result.session_id);
  t.match(result.observation, [{ type: 'text' }, { type: 'image', width: 32 }]);

  const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'observe', arguments: {} } };
  const mcp = await app.ask('POST', `/mcp/FrozenLake-v0?session_id=${id}`, call);
  t.match(mcp.body.result.content, [
    { type: 'text' },
    { type: 'image', mimeType: 'image/png', data: /^iVBOR/ },
    { type: 'text', text: /^Step 0/ },
  ]);
  t.match(mcp.body.result.structuredContent, { observation: /\n\[image\/png 32x32\]$/ });

  const sid = { 'x-session-id': 'pictures' };
  const task = { env_name: 'FrozenLake-v0', task_spec: { seed: 1, ...sized(32) } };
  await app.ask('POST', '/create', task, sid);
  const prompt = JSON.parse((await app.ask('GET', '/FrozenLake-v0/prompt', undefined, sid)).text);
  t.match(prompt, [
    { type: 'text' },
    { type: 'text' },
    { type: 'image', mimeType: 'image/png', detail: null },
  ]);

  const openenv = await app.ask(
    'POST',
    '/compat/openenv/FrozenLake-v0/step',
    { action: { action: 'Right' } },
    { 'x-session-id': id },
  );
  t.match(openenv.body.observation, {
    text: /\[image\/png 32x32\]$/,
    parts: [{ type: 'text' }, { type: 'image' }],
  });
});
