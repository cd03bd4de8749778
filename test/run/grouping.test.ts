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

const inner = Array.from({ length: 7 }, (_, index) => `a/b/c/${index}.test.ts`);

t.test('groups hold the files of one folder, or those of small folders of one parent', async t => {
  const groups = groupFiles(
    ['a/x.test.ts', 'a/y-y/0.test.ts', ...inner, 'z/b/y.test.ts'],
    { files: 3, seconds: 100 },
    () => 1,
  );
  t.same(
    groups.map(({ name, files }) => [name, files.length]),
    [
      ['a-b-1', 3],
      ['a-b-2', 2],
      ['a-b-3', 2],
      ['a-others-1', 2],
      ['z-others-1', 1],
    ],
  );
  t.same(
    groups.flatMap(({ files }) => files).filter(file => inner.includes(file)).length,
    inner.length,
    'none is lost, none runs twice',
  );
});

t.test('groups are about as long as each other; the longest comes first', async t => {
  const seconds = (file: string) => (file === inner[3] ? 30 : file === inner[5] ? 12 : 2);
  t.same(
    groupFiles([...inner, 'z/1.test.ts'], { files: 5, seconds: 20 }, seconds).map(({ files }) => files),
    [[inner[3]], [inner[5]], [inner[0], inner[1], inner[2], inner[4], inner[6]], ['z/1.test.ts']],
  );
});
