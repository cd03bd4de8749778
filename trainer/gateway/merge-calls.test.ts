import t from 'tap';
import { type ModelCall, mergeCalls } from './rollout.ts';

function call(promptIds: number[], tokenIds: number[]): ModelCall {
  return {
    promptIds,
    tokenIds: Int32Array.from(tokenIds),
    logProbs: Float32Array.from(tokenIds, id => -id),
    versions: Int32Array.from(tokenIds, () => 7),
    finishReason: 'stop',
    text: '',
  };
}

t.test('a call continues with the sequence that begins its prompt', async t => {
  const { samples, places, merges, retokenized } = mergeCalls([
    call([1, 2], [3, 4]),
    call([1, 2, 3, 4, 5], [6]),
    call([1, 2, 3, 4, 5, 6, 8, 9], [10]),
  ]);
  t.equal(samples.length, 1);
  t.same([...samples[0].tokenIds], [1, 2, 3, 4, 5, 6, 8, 9, 10]);
  t.same([...samples[0].lossMask], [0, 0, 1, 1, 0, 1, 0, 0, 1]);
  t.same([...samples[0].logProbs], [0, 0, -3, -4, 0, -6, 0, 0, -10]);
  t.same([...samples[0].versions], [0, 0, 7, 7, 0, 7, 0, 0, 7]);
  t.same(places, [
    { sample: 0, tokens: [2, 4] },
    { sample: 0, tokens: [5, 6] },
    { sample: 0, tokens: [8, 9] },
  ]);
  t.same({ merges, retokenized }, { merges: 2, retokenized: 0 });
});

t.test('a response that comes back in other ids begins a new sample, and its tokens are counted', async t => {
  const { samples, merges, retokenized } = mergeCalls([call([1, 2], [3, 4, 5]), call([1, 2, 3, 45, 6], [7])]);
  t.same(
    samples.map(({ tokenIds }) => [...tokenIds]),
    [
      [1, 2, 3, 4, 5],
      [1, 2, 3, 45, 6, 7],
    ],
  );
  t.same({ merges, retokenized }, { merges: 0, retokenized: 2 });
});

t.test('each role with its prompts is a separate sample', async t => {
  const { samples, places, merges, retokenized } = mergeCalls([
    call([1, 2], [3]),
    call([1, 9], [4]),
    call([1, 2, 3, 5], [6]),
    call([1, 9, 4, 5], [7]),
  ]);
  t.same(
    samples.map(({ tokenIds }) => [...tokenIds]),
    [
      [1, 2, 3, 5, 6],
      [1, 9, 4, 5, 7],
    ],
  );
  t.same(
    places.map(({ sample }) => sample),
    [0, 1, 0, 1],
  );
  t.same({ merges, retokenized }, { merges: 2, retokenized: 0 });
});

t.test('a call continues the longest matching branch', async t => {
  const { places, samples } = mergeCalls([
    call([1], [2]),
    call([1, 2, 3], [4]),
    call([1, 2, 5], [6]),
    call([1, 2, 3, 4, 7], [8]),
  ]);
  t.same(
    places.map(({ sample }) => sample),
    [0, 0, 1, 0],
  );
  t.same(
    samples.map(({ lossMask }) => lossMask.reduce((sum, on) => sum + on, 0)),
    [3, 1],
  );
});

t.test('every sampled token is trained on in exactly one sample', async t => {
  const calls = [call([1], [2, 3]), call([1, 2, 3, 4], [5, 6]), call([1, 2, 3, 4], [5, 7]), call([9], [])];
  const { samples } = mergeCalls(calls);
  const trained = samples.flatMap(({ lossMask }) => [...lossMask]).filter(on => on === 1).length;
  t.equal(
    trained,
    calls.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0),
  );
});
