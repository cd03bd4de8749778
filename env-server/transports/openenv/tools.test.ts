import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { testApp } from '../../../test/app.test-data.ts';
import { dial, listening } from '../../../test/wire.test-data.ts';

const COUNTER = '/compat/openenv/test%2FCounter-v0';

/** Sends steps as OpenEnv's `MCPToolClient` does, and gives the data of the replies. */
async function playing(t: Parameters<typeof listening>[0], settings: Parameters<typeof listening>[1] = {}) {
  const app = await listening(t, settings);
  const { send, next } = await dial(t, app, `${COUNTER}/ws`);
  const step = async (data: JsonObject) => {
    send({ type: 'step', data });
    return next();
  };
  const call = (tool_name: string, given: JsonObject) =>
    step({ type: 'call_tool', tool_name, arguments: given });
  return { app, step, call };
}

t.test('list_tools is answered with the tools, and is not a step', async t => {
  const { step, call } = await playing(t);
  const reply = await step({ type: 'list_tools' });
  t.match(reply, { type: 'observation', data: { reward: null, done: false } });
  const tool = reply.data.observation.tools[0 as never];
  t.same(Object.keys(tool), ['name', 'description', 'input_schema']);
  t.match(tool, { name: 'act', input_schema: { required: ['action'] } });
  t.match(await call('act', { action: 'add' }), { data: { metadata: { step: 1 } } });
});

t.test('call_tool acts, and its observation is the result of the tool', async t => {
  const player = await playing(t);
  t.match(await player.call('act', { action: 'add' }), {
    type: 'observation',
    data: {
      observation: {
        tool_name: 'act',
        result: { data: { observation: { text: /^1\/3/ }, reward: 1, done: false }, is_error: false },
        error: null,
      },
      reward: 1,
      done: false,
    },
  });
  await player.call('act', { action: 'add' });
  t.match(await player.call('act', { action: 'add' }), { data: { done: true } });
  t.match(await player.call('act', { action: 'add' }), {
    type: 'observation',
    data: { observation: { error: { error_type: 'execution_error', message: /reset the session/ } } },
  });
});

t.test('faults of a call are part of the observation', async t => {
  const player = await playing(t);
  const failed = (error_type: string, message: RegExp) => ({
    type: 'observation',
    data: { observation: { result: null, error: { error_type, message } }, reward: null, done: false },
  });
  t.match(await player.call('fly', {}), failed('tool_not_found', /'fly'; there is 'act'/));
  t.match(await player.call('act', {}), failed('invalid_args', /action: Field required/));
  t.match(await player.call('act', { action: [] }), failed('invalid_args', /integer id or a name/));
  t.match(await player.step({ type: 'call_tool' }), {
    type: 'error',
    data: { code: 'VALIDATION_ERROR', errors: [{ type: 'missing', loc: ['data', 'tool_name'] }] },
  });
  t.match(await player.step({ type: 'call_tool', tool_name: 'act', arguments: 5 }), {
    type: 'error',
    data: { code: 'VALIDATION_ERROR', errors: [{ loc: ['data', 'arguments'] }] },
  });
});

t.test('a session that is gone gets its usual error', async t => {
  const { app, call, step } = await playing(t, { idleTtlSeconds: 60 });
  await step({ type: 'list_tools' });
  app.wait(61);
  t.match(await call('act', { action: 'add' }), {
    type: 'error',
    data: { code: 'SESSION_ERROR' },
  });
});

t.test('over HTTP the actions about tools work as well', async t => {
  const { ask } = await testApp(t);
  const post = (route: string, body: JsonObject) =>
    ask('POST', `${COUNTER}/${route}`, body, { 'x-session-id': 'n' });
  await post('reset', {});
  t.match(await post('step', { action: { type: 'list_tools' } }), {
    status: 200,
    body: { observation: { tools: [{ name: 'act' }] }, reward: null },
  });
  t.match(
    await post('step', { action: { type: 'call_tool', tool_name: 'act', arguments: { action: 'add' } } }),
    { status: 200, body: { observation: { tool_name: 'act', error: null }, reward: 1 } },
  );
});

t.test('an environment with typed actions takes them as its own', async t => {
  const app = await testApp(t);
  const definition = {
    kind: 'script',
    title: 'Typed',
    instruction: 'Say what.',
    action_space: {
      type: 'Json',
      schema: { type: 'object', required: ['type'], properties: { type: { type: 'string' } } },
    },
    example_action: { type: 'list_tools' },
    source:
      'const reset = () => ({ said: "" }); const observe = s => "said " + s.said; const step = (s, a) => ({ state: { said: a.type } });',
  };
  t.equal((await app.ask('POST', '/v1/envs', { env_id: 'me/Typed-v0', definition })).status, 201);
  const post = (route: string, body: JsonObject) =>
    app.ask('POST', `/compat/openenv/me/Typed-v0/${route}`, body, { 'x-session-id': 'n' });
  await post('reset', {});
  t.match(await post('step', { action: { type: 'list_tools' } }), {
    body: { observation: { text: 'said list_tools' } },
  });
});
