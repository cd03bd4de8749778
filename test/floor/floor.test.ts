import t from 'tap';
import { compareWithFloor, folderCoverage } from './floor.ts';

const file = (covered: number, total: number) => ({ lines: { covered, total } });
const SUMMARY = {
  total: file(1, 1),
  '/r/a/x.ts': file(9, 10),
  '/r/a/sub/y.ts': file(10, 20),
  '/r/ab/z.ts': file(0, 5),
};

t.test('a folder counts its files and those below, rounded down', async t => {
  t.same(folderCoverage(SUMMARY, '/r', ['a', 'ab', 'empty']), { a: 63.3, ab: 0 });
});

t.test('the floor rises, never falls, and a folder below it fails', async t => {
  const { lines, raised, failed } = compareWithFloor({ a: 63.3, b: 80, c: 50 }, { a: 60, b: 90, d: 70 });
  t.same(raised, { a: 63.3, b: 90, c: 50, d: 70 });
  t.ok(failed);
  t.same(lines, [
    'a: 63.3 % of lines, floor was 60 %',
    'b: 80 % of lines, below its floor of 90 %',
    'c: 50 % of lines, floor was 0 %',
  ]);
  t.notOk(compareWithFloor({ b: 90 }, { b: 90 }).failed);
});
