import t from 'tap';
import { type DecoderConfig, scratchConfig } from '../models/config.ts';
import { settingsOf } from './settings.test-data.ts';
import { runSizes } from './sizes.ts';

const config = scratchConfig({ vocabularySize: 46, hiddenSize: 64, layers: 2, intermediateSize: 160 });

t.test('parameters are counted tensor by tensor', async t => {
  const head = 65;
  const layer = 4 * 64 * 64 + 3 * 64 + 3 * 64 * 160 + 2 * 64;
  const { parameters } = runSizes(settingsOf(), config);
  t.equal(parameters, 46 * 64 + 2 * layer + 64 + head);
  t.equal(runSizes(settingsOf({ policy: { value_head: false } }), config).parameters, parameters - head);
});

t.test('with adapters only these and the value head are learned', async t => {
  const lora = {
    rank: 2,
    alpha: 4,
    rankStabilized: false,
    dora: false,
    modules: ['q_proj', 'down_proj'] as const,
  };
  const adapted = { ...config, lora };
  const whole = runSizes(settingsOf(), config);
  const sizes = runSizes(settingsOf({ policy: { workers: 1 }, loss: { kl: { coefficient: 0.1 } } }), adapted);
  const adapters = 2 * (2 * (64 + 64) + 2 * (160 + 64));
  t.equal(sizes.trained, adapters + 65);
  t.equal(sizes.parameters, whole.parameters + adapters);
  t.equal(whole.trained, whole.parameters);
  const bytes = (what: RegExp) => sizes.memory.find(part => what.test(part.what))?.bytes;
  t.equal(bytes(/weights/), 4 * sizes.parameters);
  t.equal(bytes(/optimizer/), 8 * sizes.trained);
  t.equal(bytes(/gradients/), 8 * sizes.trained);
  t.equal(bytes(/reference/), 4 * sizes.trained);
});

t.test('a separate critic learns as many weights again, and shares the base of adapters', async t => {
  const sizes = (over: object, shape = config, critic = shape) =>
    runSizes(settingsOf({ policy: { workers: 1, critic: {}, ...over } }), shape, critic);
  const whole = runSizes(settingsOf({ policy: { workers: 1 } }), config);
  const apart = sizes({});
  t.equal(apart.parameters, whole.parameters - 65, 'the policy has no head then');
  t.equal(apart.critic, whole.parameters);
  const bytes = ({ memory }: ReturnType<typeof runSizes>, what: string) =>
    memory.find(part => part.what.startsWith(what))!.bytes;
  t.equal(bytes(apart, 'critic ('), 4 * 5 * whole.parameters);
  t.equal(bytes(apart, "critic's activations"), 4 * 2048 * 2 * (10 * 64 + 4 * 160));
  t.ok(apart.totalBytes > whole.totalBytes + 4 * 5 * whole.parameters - 1000);
  const lora = { rank: 2, alpha: 4, rankStabilized: false, dora: false, modules: ['q_proj'] as const };
  const adapted = { ...config, lora };
  const adapters = 2 * 2 * (64 + 64) + 65;
  t.equal(sizes({}, adapted).critic, adapters);
  t.equal(bytes(sizes({}, adapted), 'critic ('), 4 * 5 * adapters);
  const own = bytes(sizes({ critic: { init: 'elsewhere' } }, adapted), 'critic (');
  t.equal(own, 4 * (5 * adapters + whole.parameters - 65));
  const onGpu = bytes(sizes({ runtime: 'webgpu' }, adapted), 'critic (');
  t.equal(onGpu, 4 * (4 * adapters + whole.parameters - 65), 'a separate device, with one sum of gradients');
});

t.test('memory grows with workers, open episodes and a reference', async t => {
  const sizes = (over: Parameters<typeof settingsOf>[0] = {}) => runSizes(settingsOf(over), config);
  const bytes = (over: Parameters<typeof settingsOf>[0], what: RegExp) =>
    sizes(over).memory.find(part => what.test(part.what))?.bytes ?? 0;
  const { parameters, episodes, episodesPerIteration } = sizes();
  t.equal(bytes({}, /weights/), 4 * parameters);
  t.equal(bytes({ policy: { workers: 3 } }, /gradients/), 3 * bytes({ policy: { workers: 1 } }, /gradients/));
  const block = 16 * 2 * 2 * 64 * 4;
  t.equal(bytes({ rollout: { concurrency: 10 }, policy: { workers: 1 } }, /cache/), 10 * 11 * block);
  const activations = (policy: object) => bytes({ policy: { workers: 1, ...policy } }, /activations/);
  t.equal(activations({ micro_batch_tokens: 512 }), activations({}) / 4);
  const logits = 3 * 46;
  t.equal(
    activations({}) - activations({ recompute: true }),
    4 * 2048 * (10 * 64 + 4 * 160 - 2 * 64 + logits),
    'the logits are gone when layers are computed again',
  );
  const wordy = { ...config, vocabularySize: 100_000 };
  const large = runSizes(settingsOf({ policy: { workers: 1, recompute: true } }), wordy).memory;
  const rows = Math.floor(2 ** 26 / (4 * 100_000));
  t.equal(
    large.find(({ what }) => what.startsWith('activations'))!.bytes,
    4 * (2048 * 2 * 64 + 3 * 100_000 * rows),
    'or the inputs of the layers and the logits are the most',
  );
  const lora = { rank: 2, alpha: 4, rankStabilized: false, dora: false, modules: ['q_proj'] as const };
  const again = runSizes(settingsOf({ policy: { workers: 1, recompute: true } }), { ...config, lora });
  const recomputed = again.memory.find(({ what }) => what.startsWith('activations'))!.bytes;
  t.equal(recomputed - activations({ recompute: true }), 4 * 2048 * 2 * (3 * 64 + 160), 'read by adapters');
  t.equal(bytes({}, /reference/), 0);
  t.equal(bytes({ loss: { kl: { coefficient: 0.1 } } }, /reference/), 4 * parameters);
  t.same([episodesPerIteration, episodes], [128, 128 * 200]);
});

t.test('a quantized base, logits in pieces and open episodes count as they are', async t => {
  const large = scratchConfig({ vocabularySize: 151_936, hiddenSize: 64, layers: 2, intermediateSize: 160 });
  const lora = { rank: 2, alpha: 4, rankStabilized: false, dora: false, modules: ['q_proj'] as const };
  const part = (over: Parameters<typeof settingsOf>[0], what: string, shape: DecoderConfig = large) =>
    runSizes(settingsOf(over), shape).memory.find(part => part.what.startsWith(what))!.bytes;
  const one = { policy: { workers: 1 } };
  const layers = 2 * (4 * 64 * 64 + 3 * 64 * 160);
  const float = part(one, 'weights', { ...large, lora });
  const int8 = part(one, 'weights', { ...large, lora, quantization: 'int8' });
  const scales = 2 * ((4 + 2 * 2.5) * 64 + 3 * 64);
  t.equal(float - int8, 3 * layers - 4 * scales, 'a byte a weight, and a scale each block of a row');
  const rows = Math.floor(2 ** 26 / (4 * 151_936));
  t.equal(part(one, 'activations'), 4 * (2048 * 2 * (10 * 64 + 4 * 160) + 3 * rows * 151_936));
  const few = { rollout: { env_groups: 2, group_size: 4 }, validation: { episodes: 4 }, ...one };
  t.equal(part(few, 'cache of 8 open'), part({ rollout: { concurrency: 8 }, ...one }, 'cache of 8 open'));
  t.equal(part({ policy: { workers: 3 } }, 'compiled programs'), 3 * 2 ** 28);
  t.equal(part({ policy: { workers: 3 } }, 'the program'), 110e6 + 3 * 45e6);
});

t.test('a GPU keeps one sum of gradients and a cache of the requested size', async t => {
  const large = scratchConfig({ vocabularySize: 46, hiddenSize: 1024, layers: 24, intermediateSize: 160 });
  const policy = { runtime: 'webgpu', workers: 3, context: 512 };
  const { memory, trained } = runSizes(settingsOf({ policy, rollout: { concurrency: 256 } }), large);
  const bytes = (what: string) => memory.find(part => part.what.startsWith(what))!.bytes;
  t.equal(bytes('gradients'), 4 * trained);
  t.equal(bytes('cache'), 256 * 512 * 24 * 2 * 1024 * 4);
});
