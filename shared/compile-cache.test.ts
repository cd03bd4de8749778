import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';

const MODULE = new URL('./compile-cache.ts', import.meta.url).href;
const PROGRAM = `
  const { keepCompiledModules } = await import(${JSON.stringify(MODULE)});
  keepCompiledModules();
  await import('commander');
  console.log('ran');
`;

/** Output of a program that keeps its modules, without the variables of this test. */
function run(env: { [name: string]: string }): string {
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', PROGRAM], {
    encoding: 'utf8',
    env: { PATH: process.env.PATH, ...env },
  });
  return stdout;
}

t.test('compiled modules are kept in the cache folder of the user', async t => {
  const folder = t.testdir();
  t.equal(run({ XDG_CACHE_HOME: folder }), 'ran\n');
  const [version] = readdirSync(join(folder, 'ragen/compiled'));
  t.ok(readdirSync(join(folder, 'ragen/compiled', version)).length > 0);
});

t.test('a program runs without them where none can be kept, or none are wanted', async t => {
  const folder = t.testdir();
  writeFileSync(join(folder, 'ragen'), 'a file in the way');
  t.equal(run({ XDG_CACHE_HOME: folder }), 'ran\n');
  const other = t.testdir();
  t.equal(run({ XDG_CACHE_HOME: other, NODE_DISABLE_COMPILE_CACHE: '1' }), 'ran\n');
  t.notOk(existsSync(join(other, 'ragen')));
});
