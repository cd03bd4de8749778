import { Worker } from 'node:worker_threads';
import t from 'tap';
import { ThreadCalls } from './thread-calls.ts';

const PROGRAM = `
const { parentPort } = require('node:worker_threads');
parentPort.on('message', ({ id, value }) => {
  if (value === 'end') process.exit(3);
  if (value === 'fail') parentPort.postMessage({ id, error: new Error('no room'), fields: { code: 'ENOSPC' } });
  else if (value !== 'wait') parentPort.postMessage({ id, result: 2 * value });
});`;

function open() {
  const thread = new ThreadCalls(new Worker(PROGRAM, { eval: true }), 'the thread', reason =>
    Object.assign(new Error(`calls fail: ${reason.message}`), { cause: reason }),
  );
  thread.worker.on('message', ({ id, ...reply }) => thread.settle(id, reply));
  const call = (value: unknown) => thread.call(id => thread.worker.postMessage({ id, value }));
  return { thread, call };
}

t.test('each call gets its own reply, errors with their fields', async t => {
  const { thread, call } = open();
  t.teardown(() => thread.worker.terminate());
  const failed = t.rejects(call('fail'), { message: 'no room', code: 'ENOSPC' });
  t.same(await Promise.all([call(1), call(2), call(3)]), [2, 4, 6]);
  await failed;
  t.same([thread.pending, thread.hasEnded], [0, false]);
});

t.test('calls that cannot be sent are rejected and not pending', async t => {
  const { thread, call } = open();
  t.teardown(() => thread.worker.terminate());
  await t.rejects(
    call(() => {}),
    { name: 'DataCloneError' },
  );
  t.equal(thread.pending, 0);
});

t.test('pending and later calls are rejected when the thread ends', async t => {
  const { thread, call } = open();
  const waiting = t.rejects(call('wait'), { message: 'calls fail: the thread ended with code 3' });
  await t.rejects(call('end'), /ended with code 3/);
  await waiting;
  t.same([thread.pending, thread.hasEnded], [0, true]);
  await t.rejects(call(1), /ended with code 3/);
});
