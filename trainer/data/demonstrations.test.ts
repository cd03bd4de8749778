import t from 'tap';
import type { Learned } from '../prompts/conversation.ts';
import type { Turn } from '../rollout/episode.ts';
import { demonstrationsOf } from './demonstrations.ts';

const turn = (tokens: readonly [number, number], own: Partial<Turn> = {}) => ({ tokens, ...own }) as Turn;
const sample = (mask: number[]) => ({
  tokenIds: Int32Array.from(mask, (_, i) => i),
  lossMask: Uint8Array.from(mask),
  logProbs: new Float32Array(mask.length),
  versions: new Int32Array(mask.length),
});
const masks = (episode: Parameters<typeof demonstrationsOf>[0], learned: Learned) =>
  demonstrationsOf(episode, learned).map(({ lossMask }) => lossMask.join(''));

t.test(
  'what is said is learned, or everything but the first token; nothing that was said at random',
  async t => {
    const whole = sample([0, 0, 1, 1, 0, 1, 1]);
    const turns = [turn([2, 4], { exploratory: true }), turn([5, 7])];
    t.same(masks({ ...whole, turns }, 'responses'), ['0000011']);
    t.same(masks({ ...whole, turns }, 'everything'), ['0100111']);
    t.same(whole.lossMask.join(''), '0011011', 'the episode keeps its own mask');
  },
);

t.test('each turn has its place in its own sample', async t => {
  const samples = [sample([0, 1, 1]), sample([0, 0, 1])];
  const turns = [turn([1, 3], { sample: 0 }), turn([2, 3], { sample: 1, exploratory: true })];
  t.same(masks({ ...samples[1], samples, turns }, 'responses'), ['011', '000']);
  t.same(masks({ ...samples[1], samples, turns }, 'everything'), ['011', '010']);
});

t.test('turns that a sample repeats are learned where they were said', async t => {
  const samples = [sample([0, 1, 1]), { ...sample([0, 0, 0, 0, 1]), repeated: 3 }];
  const turns = [turn([1, 3], { sample: 0, exploratory: true }), turn([4, 5], { sample: 1 })];
  t.same(masks({ ...samples[1], samples, turns }, 'everything'), ['000', '00011']);
});

t.test('tokens that could have been sampled are kept', async t => {
  const allowed = new Map([[2, Int32Array.of(2, 9)]]);
  const whole = { ...sample([0, 0, 1]), allowed };
  for (const learned of ['responses', 'everything'] as const)
    t.equal(demonstrationsOf({ ...whole, turns: [turn([2, 3])] }, learned)[0].allowed, allowed);
  t.notOk('allowed' in demonstrationsOf({ ...sample([0, 1]), turns: [] }, 'responses')[0]);
});
