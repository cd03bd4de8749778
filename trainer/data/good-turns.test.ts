import t from 'tap';
import { withoutPoorTurns } from './good-turns.ts';

const episode = (tag: string, rewards: readonly number[]) =>
  ({ tag, turns: rewards.map(reward => ({ reward, penalty: 0 })) }) as never as Parameters<
    typeof withoutPoorTurns
  >[0][number];

/** For each episode, which turns are left to imitate. */
const kept = (...episodes: ReturnType<typeof episode>[]) =>
  withoutPoorTurns(episodes).map(({ turns }) => turns.map(({ exploratory }) => !exploratory));

t.test('turns that cost more than usual are nothing to imitate', async t => {
  t.same(kept(episode('a', [0, 0, -1, 0]), episode('a', [0, 0, 0, 1])), [
    [false, false, false, true],
    [true, true, true, true],
  ]);
});

t.test('where hardly any turn earns something, all are imitated', async t => {
  const rare = Array.from({ length: 30 }, (_, i) => episode('a', [0, 0, i === 7 ? 1 : 0]));
  t.ok(kept(...rare).every(turns => turns.every(Boolean)));
});

t.test('each environment has its own usual reward', async t => {
  const many = Array.from({ length: 4 }, () => episode('rich', [10]));
  t.same(kept(...many, episode('poor', [-3]), episode('poor', [-3])).flat(), Array(6).fill(true));
});

t.test('exploratory turns stay so', async t => {
  const [{ turns }] = withoutPoorTurns([
    { tag: 'a', turns: [{ reward: 0, penalty: 0, exploratory: 'not_allowed' }] } as never,
  ]) as unknown as { turns: { exploratory: unknown }[] }[];
  t.equal(turns[0].exploratory, 'not_allowed');
});
