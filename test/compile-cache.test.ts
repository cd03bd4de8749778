import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';

const PRELOADED = fileURLToPath(new URL('../bin/needs-node.js', import.meta.url));
/** The program of Node.js that strips types: it takes a fifteenth of a second to load. */
const STRIPPER = 'NativeModule internal/deps/amaro/dist/index';
const PROGRAM = `
  const { NODE_COMPILE_CACHE: folder = 'none' } = process.env;
  const loaded: readonly string[] = (process as any).moduleLoadList;
  console.log(folder, loaded.includes('${STRIPPER}'));
`;

t.test('compiled modules are kept in the cache folder of the user', t => {
  const folder = t.testdir({ 'package.json': '{"type":"module"}', 'program.ts': PROGRAM });
  const run = (env: { [name: string]: string }): string => {
    const { stdout } = spawnSync(process.execPath, ['--import', PRELOADED, join(folder, 'program.ts')], {
      encoding: 'utf8',
      env: { PATH: process.env.PATH, ...env },
    });
    return stdout.trim();
  };
  const kept = join(folder, 'cache/ragen/compiled');
  const env = { XDG_CACHE_HOME: join(folder, 'cache') };
  t.equal(run(env), `${kept} true`, 'for the processes that it starts, too');
  const [version] = readdirSync(kept);
  t.ok(readdirSync(join(kept, version)).length > 0);
  t.equal(run(env), `${kept} false`, 'no types are stripped the second time');

  const own = join(folder, 'own');
  t.equal(run({ ...env, NODE_COMPILE_CACHE: own }), `${own} true`, 'another folder');
  const other = join(folder, 'other');
  const none = { XDG_CACHE_HOME: other, NODE_DISABLE_COMPILE_CACHE: '1' };
  t.equal(run(none), 'none true', 'none are wanted');
  t.notOk(existsSync(other));
  writeFileSync(other, 'a file in the way');
  t.equal(run({ XDG_CACHE_HOME: other }), 'none true', 'none can be kept');
  t.end();
});
