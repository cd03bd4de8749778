import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { createRegistry } from '../registry.ts';
import { resolveConfig, resolveOptions } from './settings.ts';
import { symmetricKey } from './splits.ts';

const key = (...rows: string[]) => symmetricKey(rows.length, rows[0].length, rows.join(''));

t.test('a key is the same for all eight images of a board, and for no other board', async t => {
  const images = [
    ['abc', 'def'],
    ['cba', 'fed'],
    ['def', 'abc'],
    ['fed', 'cba'],
    ['ad', 'be', 'cf'],
    ['cf', 'be', 'ad'],
    ['da', 'eb', 'fc'],
    ['fc', 'eb', 'da'],
  ];
  t.equal(new Set(images.map(rows => key(...rows))).size, 1);
  t.not(key('abc', 'dfe'), key('abc', 'def'));
  t.not(key('abcd'), key('ab', 'cd'));
});

t.test('the key of a board of any size is the first of its images, again and again', async t => {
  const turned = (rows: readonly string[]) =>
    Array.from(rows[0], (_, col) =>
      rows
        .map(row => row[col])
        .reverse()
        .join(''),
    );
  const mirrored = (rows: readonly string[]) => rows.map(row => Array.from(row).reverse().join(''));
  const first = (board: readonly string[]) => {
    const images: string[] = [];
    for (let rows = board, i = 0; i < 4; i++, rows = turned(rows))
      for (const image of [rows, mirrored(rows)])
        images.push(`${image.length}x${image[0].length} ${image.join('')}`);
    return images.sort()[0];
  };
  const random = Random.fromSeed(1);
  for (const round of [1, 2]) {
    for (let rows = 1; rows <= 21; rows += 2) {
      for (let cols = 1; cols <= 21; cols += 4) {
        const board = Array.from({ length: rows }, () =>
          Array.from({ length: cols }, () => random.choice(['a', 'b'])).join(''),
        );
        t.equal(key(...board), first(board), `${rows} × ${cols}, round ${round}`);
      }
    }
  }
});

t.test('levels of a seed have one name, and levels of different seeds mostly others', async t => {
  for (const environment of createRegistry().list()) {
    if (!environment.levelKey) continue;
    const config = resolveConfig(environment, {});
    const keyOf = async (seed: number) => {
      const state = await environment.reset(config, Random.fromSeed(seed), resolveOptions(environment));
      const name = environment.levelKey!(state);
      await environment.dispose?.(state);
      return name;
    };
    const names = new Set<string>();
    for (let seed = 0; seed < 12; seed++) names.add(await keyOf(seed));
    t.equal(await keyOf(3), await keyOf(3), environment.spec.id);
    t.ok(names.size > 4, `${environment.spec.id}: ${names.size}`);
  }
});

t.test('where the player starts makes no other level of Sokoban and FrozenLake', async t => {
  const registry = createRegistry();
  for (const [id, boards] of [
    ['Sokoban-v0', ['######\n#@$-.#\n#----#\n######', '######\n#----#\n#.-$@#\n######']],
    ['Sokoban-v0', ['######\n#@$-.#\n#----#\n######', '######\n#-$-.#\n#---@#\n######']],
    ['FrozenLake-v0', ['SFH\nFFF\nFFG', 'FFG\nFFF\nSFH']],
    ['FrozenLake-v0', ['SFH\nFFF\nFFG', 'FFH\nFSF\nFFG']],
  ] as const) {
    const environment = registry.list().find(({ spec }) => spec.id === id)!;
    const config = resolveConfig(environment, {});
    const [one, other] = await Promise.all(
      boards.map(async layout =>
        environment.levelKey!(await environment.reset(config, Random.fromSeed(1), { layout })),
      ),
    );
    t.equal(one, other, `${id} ${boards[1]}`);
  }
});
