import { once } from 'node:events';
import { connect } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import t from 'tap';
import { ownerOf } from './routes.ts';
import { lesson, sample, sampleBody, startTinker, WireClient, type WireModel } from './tinker.test-data.ts';

const MIB = 2 ** 20;
const MAX_MODELS = 2;
const { client, server, url } = await startTinker(t, { maxModels: MAX_MODELS, pollMs: 100 });
const other = new WireClient(url, 'tml-other');
const base = server.name;
t.afterEach(() => Promise.all([client, other].map(one => one.finishAll())));
t.setTimeout(300_000);
setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** The server's side of a model. */
const modelOf = ({ id, client: { key } }: WireModel) =>
  server.model(id, ownerOf({ headers: { 'x-api-key': key } })).model;

t.test('operations that wait keep nothing of their bodies that they do not need', async t => {
  const model = await client.model(base);
  const excess = JSON.parse(`[${Array.from({ length: MIB / 8 }, () => '[]').join()}]`);
  collectGarbage();
  const before = process.memoryUsage().heapUsed;
  for (const [route, fields] of [
    ['optim_step', { adam_params: { excess } }],
    ['optim_step', { optimizer_params: excess }],
    ['save_weights', { path: 'a', excess }],
    ['save_weights_for_sampler', { path: 'b', excess }],
    ['optim_step', { excess }],
  ] as const) {
    // The first number never comes.
    const numbered = { model_id: model.id, seq_id: ++model.next, ...fields };
    t.equal((await client.post(route, numbered)).status, 200);
  }
  collectGarbage();
  const kept = process.memoryUsage().heapUsed - before;
  t.ok(kept < 4 * MIB, `${Math.round(kept / MIB)} MiB`);
});

t.test('a large body of JSON for forward_backward is refused unread, and uses up its number', async t => {
  const model = await client.model(base);
  const text = `{"model_id":"${model.id}","seq_id":${model.next++},"data":[`;
  const reply = await client.post('forward_backward', Buffer.from(text), {
    'content-type': 'application/json',
  });
  t.match(reply, { status: 415, body: { detail: /^forward_backward takes application\/x-protobuf alone$/ } });
  t.match(await model.step(), { error: /request 1 of it failed \(forward_backward takes/ });
});

t.test('models that were unloaded count until what they run has ended', async t => {
  const mine: WireModel[] = [];
  while (mine.length < MAX_MODELS - 1) mine.push(await client.model(base));
  const held = Promise.withResolvers<void>();
  const ends = mine.map(model => modelOf(model).operations.run(1, false, () => held.promise));
  const unloads = [];
  for (const { id } of mine) unloads.push(await client.post('unload_model', { model_id: id }));
  const session_id = await client.session();
  const created = await client.post('create_model', {
    ...{ session_id, model_seq_id: 0, base_model: base, lora_config: { rank: 4 } },
  });
  const theirs = await other.model(base);
  await theirs.forwardBackward(lesson());
  t.ok((await theirs.step()).metrics, 'another key has its share');
  const { request_id } = created.body;
  t.equal((await client.post('retrieve_future', { request_id })).status, 408, 'it waits');
  const late = await client.session();
  const never = await client.post('create_model', {
    ...{ session_id: late, model_seq_id: 0, base_model: base, lora_config: { rank: 4 } },
  });
  const ended = server.session(late, ownerOf({ headers: { 'x-api-key': client.key } }));
  await client.post(`sessions/${late}/finish`, {});
  held.resolve();
  await Promise.all(ends);
  for (const unload of unloads) await client.result(unload);
  t.match(await client.result(created), { model_id: `${session_id}:train:0` });
  t.equal((await client.post('retrieve_future', { request_id: never.body.request_id })).status, 410);
  t.equal(ended.models.size, 0, 'a session that ended while it waited gets none');
});

t.test('bodies that one key sends slowly leave a share to other keys', async t => {
  const { port } = new URL(url);
  const slow = async () => {
    const socket = connect(Number(port), '127.0.0.1');
    t.teardown(() => socket.destroy());
    const head = `POST /api/v1/forward_backward HTTP/1.1\r\nhost: localhost\r\nx-api-key: ${client.key}`;
    socket.write(
      `${head}\r\ncontent-type: application/x-protobuf\r\ncontent-length: ${64 * MIB}\r\n\r\nslow`,
    );
    return socket;
  };
  const sockets = await Promise.all([1, 2, 3].map(slow));
  await new Promise(resolve => setTimeout(resolve, 50));
  const [data] = await once(await slow(), 'data');
  t.match(String(data), /429.*the bodies of open requests of this key fill its share/s);
  t.ok(await sample(other, sampleBody(await (await other.model(base)).sampler(0), 0)));
  for (const socket of sockets) socket.destroy();
  await new Promise(resolve => setTimeout(resolve, 50));
  t.ok(await client.session(), 'what a client that went away had announced is given back');
});
