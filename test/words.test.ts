import t from 'tap';
import { findTurns, turnsIn } from './words.ts';

t.test('no listed turn is in the tree (node test/words.ts lists them)', async t => {
  t.same(findTurns(), []);
});

t.test('turns are found with their place, in the files where they count', async t => {
  t.same(turnsIn('a.ts', 'x\nconst MOST_WAITING = 1; // the one whose turn it is'), [
    { place: 'a.ts:2', found: 'whose', rather: 'with, that has, of which' },
    { place: 'a.ts:2', found: 'MOST_', rather: 'MAX_' },
  ]);
  t.same(turnsIn('a.md', 'MOST_ of it; tell apart; a test that tells them apart; standing'), []);
  t.match(turnsIn('a.ts', '/** Of a frame. */'), [{ found: '/** Of ' }]);
  t.same(turnsIn('a.ts', '/** Frame id. */'), []);
  t.match(turnsIn('a.md', 'The run goes on; it holds up others.'), [
    { found: 'goes on' },
    { found: 'holds up' },
  ]);
  t.same(turnsIn('a.md', 'Adapters go on the layers; an answer may hold up to five actions.'), []);
});
