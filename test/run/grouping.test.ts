import t from 'tap';
import { canShareProcess, groupFiles } from './grouping.ts';

t.test('a file that changes something of the whole process runs alone', async t => {
  const alone = [
    `process.${'env'}.HOME = folder;`,
    `import { startProcess } from '../test/process.${'test-data'}.ts';`,
    `t.${'beforeEach'}(() => clear());`,
    `t.${'setTimeout'}(60_000);`,
  ];
  for (const source of alone) t.notOk(canShareProcess(`import t from 'tap';\n\n${source}\n`), source);
  t.ok(canShareProcess("t.test('in a test', async t => {\n  t.setTimeout(60_000);\n});\n"));
});

t.test('groups hold the files of one folder, about as many in each', async t => {
  const inner = Array.from({ length: 7 }, (_, index) => `a/b/c/${index}.test.ts`);
  t.same(
    groupFiles(['a/x.test.ts', ...inner, 'z/b/y.test.ts'], 3).map(({ name, files }) => [name, files.length]),
    [
      ['a-1', 1],
      ['a-b-1', 3],
      ['a-b-2', 3],
      ['a-b-3', 1],
      ['z-b-1', 1],
    ],
  );
  t.same(
    groupFiles(inner, 3).flatMap(group => group.files),
    inner,
    'none is lost, none runs twice',
  );
});
