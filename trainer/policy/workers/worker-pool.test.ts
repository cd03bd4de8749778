import t from 'tap';
import { parameterSpecs } from '../../models/parameters.ts';
import { ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import { config, policyWith, sampling } from '../policies.test-data.ts';
import { Homes } from './homes.ts';
import type { WorkerSetup } from './protocol.ts';
import { WorkerHandle } from './worker-pool.ts';

const request = {
  sequenceId: 1,
  append: [1],
  sampling: { ...sampling, maxNewTokens: 60, stopTokenIds: [] },
  seed: 0,
};

t.test('closing a policy rejects what is pending and all that comes later', async t => {
  const policy = await policyWith();
  const pending = policy.generate(request);
  const rejected = t.rejects(pending, /the policy was closed/);
  await policy.close();
  await rejected;
  await t.rejects(policy.generate(request), /the policy was closed/);
  await t.rejects(policy.score([]), /the policy was closed/);
  await policy.close();
});

function setupWith(change: Partial<WorkerSetup>): WorkerSetup {
  const store = () => new ParameterStore(parameterSpecs(config, false)).share();
  return {
    index: 2,
    runtime: 'onnx',
    precision: 'float32',
    config,
    valueHead: false,
    critic: false,
    maxSequenceLength: 64,
    maxOpenSequences: 2,
    tokenBudget: 256,
    threads: 1,
    files: {},
    recompute: false,
    dropout: null,
    keepStaleCache: false,
    grammars: {},
    base: null,
    norms: null,
    reference: null,
    weights: store(),
    firstMoments: store(),
    secondMoments: store(),
    gradients: [store(), store(), store()],
    squares: new SharedArrayBuffer(8),
    ...change,
  };
}

t.test('a thread that dies is an error for what is pending and what comes later, not a hang', async t => {
  const handle = await WorkerHandle.start(setupWith({}));
  const rejected = t.rejects(
    handle.generate(request),
    /policy worker 2 failed: the thread ended with code 1/,
  );
  await handle.terminate();
  await rejected;
  await t.rejects(handle.run('hold'), /policy worker 2 failed/);
  await handle.close();
});

t.test('a thread that cannot start says why', async t => {
  const broken = { layout: [{ name: 'w', shape: [1] }], buffer: new SharedArrayBuffer(4) };
  await t.rejects(
    WorkerHandle.start(setupWith({ weights: broken })),
    /policy worker 2 failed: the layout needs/,
  );
});

const PROMPT = Array.from({ length: 100 }, (_, i) => i);

function opened(homes: Homes, ids: readonly number[], append: readonly number[], maxNewTokens: number) {
  return ids.map(sequenceId =>
    homes.workerFor({ sequenceId, append, sampling: { ...sampling, maxNewTokens } }),
  );
}

t.test('sequences with different prompts go to the worker with the fewest', async t => {
  const homes = new Homes(3);
  t.same(
    [0, 1, 2, 3].flatMap(id => opened(homes, [id], [...PROMPT, id], 10)),
    [0, 1, 2, 0],
  );
  t.equal(homes.release(1), 1);
  t.same(opened(homes, [4], [4], 10), [1], 'a free place is taken');
  t.equal(homes.release(1), undefined, 'released once');
});

t.test('a long prompt is computed by one worker for its group, and groups share the workers', async t => {
  const homes = new Homes(2);
  const groups = [0, 1, 2, 3].map(group =>
    opened(
      homes,
      [0, 1, 2, 3].map(member => 10 * group + member),
      [...PROMPT, group],
      10,
    ),
  );
  t.same(groups, [
    [0, 0, 0, 0],
    [1, 1, 1, 1],
    [0, 0, 0, 0],
    [1, 1, 1, 1],
  ]);
});

t.test('responses that may be longer than the prompt spread over the workers', async t => {
  t.same(opened(new Homes(2), [0, 1, 2, 3], PROMPT, 101), [0, 1, 1, 0]);
  // Ten more of ten tokens each are as long as the prompt; the twelfth is one too many.
  t.same(
    opened(
      new Homes(2),
      Array.from({ length: 13 }, (_, id) => id),
      PROMPT,
      10,
    ),
    [...new Array<number>(11).fill(0), 1, 1],
  );
});

t.test('a prompt is forgotten with its last sequence, a parked one counts no more', async t => {
  const homes = new Homes(2);
  t.same(opened(homes, [0, 1], PROMPT, 10), [0, 0]);
  t.same(opened(homes, [2], [5], 10), [1]);
  homes.release(0);
  t.same(opened(homes, [3], PROMPT, 10), [0], 'one of the prompt is still open');
  homes.release(1);
  homes.release(3);
  t.same(opened(homes, [4], [6], 10), [0]);
  t.same(opened(homes, [5], [7], 10), [0]);
  t.same(opened(homes, [6], PROMPT, 10), [1], 'none is open: the worker with the fewest');
  homes.park(4);
  homes.park(4);
  homes.park(5);
  t.same(opened(homes, [7, 8], [8], 1000), [0, 0]);
  t.same(opened(homes, [4], [], 10), [0], 'a parked one continues where it was');
  t.same(opened(homes, [9], [9], 10), [1], 'and counts again');
});
