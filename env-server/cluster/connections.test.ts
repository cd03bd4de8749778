import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { until } from '../../test/until.test-data.ts';
import { Connections } from './connections.ts';

interface Passed {
  readonly number: number;
  readonly socket: Socket;
}

/** A worker that holds what it is passed. */
function receiver(index: number) {
  const passed: Passed[] = [];
  return { index, passed, pass: (number: number, socket: Socket) => void passed.push({ number, socket }) };
}

async function open(t: Test) {
  const connections = new Connections();
  const port = await connections.listen('127.0.0.1', 0);
  t.teardown(() => connections.close());
  const dial = async () => {
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => undefined);
    t.teardown(() => socket.destroy());
    await once(socket, 'connect');
    return socket;
  };
  return { connections, port, dial };
}

t.test('connections wait for the first worker, then are handed out in turn', async t => {
  const { connections, dial, port } = await open(t);
  await dial();
  await dial();
  await t.rejects(new Connections().listen('127.0.0.1', port), { code: 'EADDRINUSE' });
  const [one, two] = [receiver(0), receiver(1)];
  connections.add(one);
  await until(() => one.passed.length === 2);
  connections.add(two);
  for (let i = 0; i < 6; i++) await dial();
  await until(() => one.passed.length + two.passed.length === 8);
  t.equal(two.passed.length, 3);
});

t.test('the supervisor resets connections that an ended worker had not taken', async t => {
  const { connections, dial } = await open(t);
  const one = receiver(0);
  connections.add(one);
  const [taken, lost] = [await dial(), await dial()];
  await until(() => one.passed.length === 2);
  const [first, second] = one.passed;
  t.notOk(first.socket.destroyed, 'kept open until it is taken');
  connections.taken(first.number);
  t.ok(first.socket.destroyed);
  const closed = once(lost, 'close');
  lost.resume();
  connections.remove(0);
  await closed;
  t.ok(second.socket.destroyed);
  const two = receiver(1);
  connections.add(two);
  await dial();
  await until(() => two.passed.length === 1);
  t.equal(one.passed.length, 2, 'it is passed nothing more');
  taken.destroy();
});
