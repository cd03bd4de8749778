import t from 'tap';
import { GraphBuilder } from '../../../graph/graph.ts';
import { ParameterStore } from '../../parameter-store.ts';
import { RuntimeError } from '../../runtime-error.ts';
import { WebGpuRuntime } from '../webgpu-runtime.ts';
import { GpuDevice } from './device.ts';

const FACTORS = {
  scale: 1,
  beta1: 0.9,
  beta2: 0.99,
  keep: 0.999,
  stepSize: 0.01,
  inverseRoot: 1,
  epsilon: 1e-8,
};
const LAYOUT = [{ name: 'w', shape: [4, 4] }];

/** Gradient 2 · w, so that every step depends on all before. */
function graph() {
  const g = new GraphBuilder();
  g.output('w', g.mul(g.parameter('w', [4, 4]), 2));
  g.output('sum', g.sum(g.parameter('w', [4, 4])));
  return g.build();
}

interface State {
  readonly weights: ParameterStore;
  readonly first: ParameterStore;
  readonly second: ParameterStore;
}

function fresh(): State {
  const weights = new ParameterStore(LAYOUT);
  weights.array('w').forEach((_, i, w) => {
    w[i] = 1 + i / 10;
  });
  return { weights, first: new ParameterStore(LAYOUT), second: new ParameterStore(LAYOUT) };
}

async function trainerOn(runtime: WebGpuRuntime, state: State) {
  const learner = await runtime.memory.learner(state);
  const executable = await runtime.compile(graph(), { parameters: state.weights, sums: learner.gradients });
  return {
    learner,
    async step() {
      learner.clear();
      await executable.run({});
      await learner.step(FACTORS);
    },
  };
}

const found = await GpuDevice.open();
found?.close();
const options = { skip: found === null ? 'no GPU here that Dawn can use' : false };

t.test('a run continues from its checkpoint after its device was lost', options, async t => {
  const undisturbed = fresh();
  const whole = (await WebGpuRuntime.open())!;
  const reference = await trainerOn(whole, undisturbed);
  for (let step = 0; step < 4; step++) await reference.step();
  await reference.learner.download();
  await whole.close();

  const state = fresh();
  const device = (await GpuDevice.open())!;
  const runtime = new WebGpuRuntime(device);
  const trainer = await trainerOn(runtime, state);
  await trainer.step();
  await trainer.step();
  await trainer.learner.download();
  const checkpoint = [state.weights, state.first, state.second].map(store => store.flat.slice());
  await trainer.step();
  device.device.destroy();
  await t.rejects(trainer.step(), RuntimeError);
  const lost = /the GPU was lost \(.*\); if it ran out of memory, lower policy\.micro_batch_tokens/;
  await t.rejects(trainer.step(), lost);
  await t.rejects(trainer.learner.download(), lost);
  await t.rejects(runtime.compile(graph(), { parameters: state.weights }), lost);
  await runtime.close();

  const resumed = fresh();
  [resumed.weights, resumed.first, resumed.second].forEach((store, i) => {
    store.flat.set(checkpoint[i]);
  });
  const next = (await WebGpuRuntime.open())!;
  const again = await trainerOn(next, resumed);
  await again.step();
  await again.step();
  await again.learner.download();
  await next.close();
  for (const name of ['weights', 'first', 'second'] as const) {
    t.same([...resumed[name].array('w')], [...undisturbed[name].array('w')], name);
  }
});

t.test('errors of missing GPU memory name the array and the setting', options, async t => {
  const runtime = (await WebGpuRuntime.open())!;
  t.teardown(() => runtime.close());
  const { largestArray } = runtime.memory;
  await t.rejects(
    runtime.memory.allocate('the cache', largestArray + 1),
    /the cache takes \d+ MiB of an array, this GPU gives a shader at most \d+ MiB in one piece: lower policy\./,
  );
});

t.test('memory that runs out is named with what lies there already', options, async t => {
  const device = (await GpuDevice.open())!;
  const runtime = new WebGpuRuntime(device);
  t.teardown(() => runtime.close());
  const state = fresh();
  await trainerOn(runtime, state);
  await runtime.memory.allocate('the cache of 3 pages', 2 ** 18);
  // The next allocation is the one that the GPU has no room for.
  const scopes = [{ message: 'out of memory' }, null] as unknown as (GPUError | null)[];
  device.device.popErrorScope = async () => scopes.shift() ?? null;
  await t.rejects(
    runtime.memory.allocate('the cache of 9 pages', 2 ** 20),
    /no room for 4 MiB of the cache of 9 pages next to 192 bytes of weights and moments, 64 bytes of gradients, 1 MiB of the cache: lower policy\./,
  );
});
