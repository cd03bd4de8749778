import t from 'tap';
import { canShareProcess, groupFiles } from './grouping.ts';

t.test('a file that changes something of the whole process, outside of its tests, runs alone', async t => {
  const alone = [
    "process.env.HOME = '/nowhere';",
    'Object.assign(process.env, { HOME: folder });',
    "process.chdir('/');",
    "setFlagsFromString('--expose-gc');",
    't.beforeEach(() => clear());',
  ];
  for (const source of alone) t.notOk(canShareProcess(`import t from 'tap';\n\n${source}\n`), source);
  const inTest =
    "t.test('in a test', async t => {\n  process.env.HOME = '/nowhere';\n  t.setTimeout(60_000);\n});\n";
  t.ok(canShareProcess(`t.setTimeout(60_000);\n${inTest}`));
});

t.test(
  'groups hold the files of one folder, about as many in each, or those of small folders of one parent',
  async t => {
    const inner = Array.from({ length: 7 }, (_, index) => `a/b/c/${index}.test.ts`);
    t.same(
      groupFiles(['a/x.test.ts', 'a/y-y/0.test.ts', ...inner, 'z/b/y.test.ts'], 3).map(({ name, files }) => [
        name,
        files.length,
      ]),
      [
        ['a-b-1', 3],
        ['a-b-2', 3],
        ['a-b-3', 1],
        ['a-others-1', 2],
        ['z-others-1', 1],
      ],
    );
    t.same(
      groupFiles(inner, 3).flatMap(group => group.files),
      inner,
      'none is lost, none runs twice',
    );
  },
);
