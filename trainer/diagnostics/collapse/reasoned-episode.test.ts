import t from 'tap';
import { episodeOf, turnOf } from '../../data/episodes.test-data.ts';
import { reasonedEpisode } from './collapse.ts';

const WORDS = [
  '<think>',
  '</think>',
  '<answer>',
  '</answer>',
  'go ',
  'up ',
  'Up',
  '</thi',
  'nk>',
  'grid',
  ' ',
  '\n',
];
const decode = (ids: ArrayLike<number>) => Array.from(ids, id => WORDS[id]).join('');

/** An episode of one turn, its response primed with the opening tag. */
const played = (response: number[]) => {
  const tokenIds = Int32Array.of(9, 0, ...response);
  const rawResponse = `<think>${decode(response)}`;
  return episodeOf({
    groupId: 3,
    tokenIds,
    turns: [turnOf({ rawResponse, tokens: [2, tokenIds.length] })],
  });
};
const reasoningOf = (response: number[]) =>
  Array.from(reasonedEpisode(played(response), decode, 'thought').turns[0].reasoning);

t.test('the prompt ends with the opening tag, the reasoning before the closing one', async t => {
  const { groupId, turns } = reasonedEpisode(played([4, 5, 1, 2, 6, 3]), decode, 'thought');
  t.equal(groupId, 3);
  t.same(Array.from(turns[0].prompt), [9, 0]);
  t.same(Array.from(turns[0].reasoning), [4, 5]);
});

t.test('a closing tag of several tokens is no part of it', async t => {
  t.same(reasoningOf([4, 5, 4, 7, 8, 2, 6, 3]), [4, 5, 4]);
});

t.test('empty thoughts and malformed answers have none', async t => {
  t.same(reasoningOf([1, 2, 6, 3]), []);
  t.same(reasoningOf([4, 5, 2, 6, 3]), []);
  t.same(reasoningOf([4, 5, 1, 6]), []);
});

t.test('a turn is looked up in the sample that holds it', async t => {
  const first = played([4, 1, 2, 6, 3]);
  const second = played([5, 5, 1, 2, 6, 3]);
  const { turns } = reasonedEpisode(
    { ...second, samples: [first, second], turns: [first.turns[0], { ...second.turns[0], sample: 1 }] },
    decode,
    'thought',
  );
  t.same(
    turns.map(({ reasoning }) => Array.from(reasoning)),
    [[4], [5, 5]],
  );
});

t.test('white space around the thought is no part of it', async t => {
  t.same(reasoningOf([10, 11, 4, 10, 5, 11, 1, 2, 6, 3]), [4, 10, 5]);
  t.same(reasoningOf([10, 11, 1, 2, 6, 3]), []);
});

t.test('policies without thinking are measured by their actions', async t => {
  const actionsOf = (response: number[]) => {
    const tokenIds = Int32Array.of(9, 2, ...response);
    const rawResponse = `<answer>${decode(response)}`;
    const turns = [turnOf({ rawResponse, tokens: [2, tokenIds.length] })];
    const reasoned = reasonedEpisode(episodeOf({ tokenIds, turns }), decode, 'actions');
    return Array.from(reasoned.turns[0].reasoning);
  };
  t.same(actionsOf([6, 10, 5, 3]), [6, 10, 5]);
  t.same(actionsOf([3]), []);
  t.same(actionsOf([6, 5]), []);
});
