import t from 'tap';
import { refuseWhatCannotFit, refuseWhatNoGpuHolds } from './parts.ts';

const billion = 2 ** 28;

t.test('a policy that cannot fit is refused with its sizes and what to change', async t => {
  refuseWhatCannotFit({ trained: billion, frozen: 0 }, 1, 5 * 2 ** 30);
  t.throws(
    () => refuseWhatCannotFit({ trained: billion, frozen: 0 }, 2, 6 * 2 ** 30),
    /takes 7\.0 GiB \(weights 1\.0 GiB, two moments 2\.0 GiB, gradients of 2 workers 4\.0 GiB\) and the machine has 6\.0 GiB: take 1 worker with several threads, or adapters \(LoRA\) instead of all weights, or a smaller model/,
  );
  refuseWhatCannotFit({ trained: 0, frozen: billion }, 2, 2 ** 30);
  t.throws(() => refuseWhatCannotFit({ trained: 1, frozen: billion }, 1, 2 ** 29), /take a smaller model$/);
});

t.test('a model that a GPU cannot hold, KV cache included, is refused', async t => {
  const cache = 3 * 2 ** 30;
  refuseWhatNoGpuHolds({ trained: billion, frozen: 0 }, cache, 7 * 2 ** 30);
  t.throws(
    () => refuseWhatNoGpuHolds({ trained: billion, frozen: 0 }, cache, 6 * 2 ** 30),
    /takes 7\.0 GiB \(weights 1\.0 GiB, two moments 2\.0 GiB, gradients 1\.0 GiB, the cache of keys and values 3\.0 GiB\) and policy\.gpu_memory_gib has 6\.0 GiB: take a smaller rollout\.concurrency or policy\.context \(the cache\), or adapters/,
  );
  refuseWhatNoGpuHolds({ trained: 0, frozen: billion }, 0, 2 ** 30);
});
