import { renderToString } from 'preact-render-to-string';
import t from 'tap';
import { html } from '../../components/html.ts';
import type { EpisodeDigest } from '../../compute/episode-digest.ts';
import { GroupMembers } from './episode-view.ts';

const LEVEL = {
  rows: 2,
  cols: 2,
  start: [0, 0],
  goal: [1, 1],
  player: [0, 0],
  holes: [[1, 0]],
  status: 'alive',
};
const member = (index: number, more: Partial<EpisodeDigest>): EpisodeDigest => ({
  index,
  env_id: 'FrozenLake-v0',
  tag: 'Lake',
  group_id: 3,
  member: index,
  seed: 7,
  success: false,
  terminated: true,
  return: 0,
  penalty: 0,
  turns: 1,
  invalid: 0,
  tokens: 4,
  cut: false,
  ...more,
});
const render = (group: readonly EpisodeDigest[], level: object) =>
  renderToString(html`<${GroupMembers} group=${group} level=${level} index=${0} link=${String} />`);
const boards = (text: string) => text.match(/class="path-board"/g)?.length ?? 0;

t.test('each try of a group is drawn as a path on the level', t => {
  const group = [
    member(0, {
      success: true,
      path: [
        [0, 0],
        [0, 1],
        [1, 1],
      ],
    }),
    member(1, {
      path: [
        [0, 0],
        [1, 0],
      ],
    }),
    member(2, { path: [[0, 0]] }),
  ];
  const text = render(group, LEVEL);
  t.equal(boards(text), 3);
  t.match(text, 'd="M0.5 0.6L1.5 0.6L1.4 0.5L1.4 1.5"', 'each step on its own side');
  t.match(text, '<circle fill="currentColor" cx="1.5" cy="1.5"', 'a success ends in a dot');
  t.match(text, 'd="M0.3 1.3l.4 .4m0-.4l-.4 .4"', 'a failure ends in a cross');
  t.end();
});

t.test('a path is drawn only where it begins at the player of a board of squares', t => {
  const path = [
    [0, 0],
    [0, 1],
  ] as const;
  t.equal(boards(render([member(0, { path })], { ...LEVEL, player: [1, 1] })), 0, 'another level');
  t.equal(boards(render([member(0, {})], LEVEL)), 0, 'no path');
  t.equal(boards(render([member(0, { path })], { player: [0, 0] })), 0, 'no board');
  t.equal(boards(render([member(0, { path })], { ...LEVEL, rows: 1e9 })), 0, 'an endless board');
  const many = Array.from({ length: 65 }, (_, i) => member(i, { path }));
  t.equal(boards(render(many, LEVEL)), 0, 'a group of many');
  t.equal(boards(render(many.slice(1), LEVEL)), 64);
  t.end();
});
