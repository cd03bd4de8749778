import t from 'tap';
import { parameterSpecs } from '../../models/parameters.ts';
import { ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import { config, policyWith, sampling } from '../policies.test-data.ts';
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
    packing: true,
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
    version: 0,
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
  await t.rejects(handle.run({ kind: 'hold' }), /policy worker 2 failed/);
  await handle.close();
});

t.test('a thread that cannot start says why', async t => {
  const broken = { layout: [{ name: 'w', shape: [1] }], buffer: new SharedArrayBuffer(4) };
  await t.rejects(
    WorkerHandle.start(setupWith({ weights: broken })),
    /policy worker 2 failed: the layout needs/,
  );
});
