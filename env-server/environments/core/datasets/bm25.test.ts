import t from 'tap';
import { Bm25Index, tokenize } from './bm25.ts';

t.test('scores are BM25 with k1 = 0.9 and b = 0.4', async t => {
  const index = new Bm25Index(['red fox red fox', 'red dog', 'blue bird sings loud songs today']);
  const lengths = [4, 2, 6];
  const weight = (count: number, length: number) =>
    (count * 1.9) / (count + 0.9 * (0.6 + (0.4 * length) / 4));
  const rarity = (documents: number) => Math.log(1 + (3 - documents + 0.5) / (documents + 0.5));
  const hits = index.search('red fox', 10);
  t.same(
    hits.map(hit => hit.document),
    [0, 1],
  );
  t.ok(Math.abs(hits[0].score - (rarity(2) + rarity(1)) * weight(2, lengths[0])) < 1e-8);
  t.ok(Math.abs(hits[1].score - rarity(2) * weight(1, lengths[1])) < 1e-8);
});

t.test('results are cut to the limit, equal ones keep their order, nothing is found for nothing', async t => {
  const index = new Bm25Index(['same words', 'same words', 'same words', 'other']);
  t.same(
    index.search('same', 2).map(hit => hit.document),
    [0, 1],
  );
  t.same(index.search('', 5), []);
  t.same(index.search('the of absent', 5), []);
  t.same(new Bm25Index([]).search('same', 5), []);
  t.same(
    new Bm25Index(['red fox', '']).search('fox the', 5).map(hit => hit.document),
    [0],
  );
  t.same(new Bm25Index(['', '', '']).search('fox', 5), []);
});

t.test('words are lower case without stop words and plural endings', async t => {
  t.same(tokenize('The Ladies’ shoes, 42 boxes of GLASS and a bus!'), [
    'lady',
    'shoe',
    '42',
    'boxe',
    'glass',
    'bus',
  ]);
  t.same(tokenize('sneakers sneaker'), ['sneaker', 'sneaker']);
});
