import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { lacksPython, PYTHON, PYTHON_MS } from '../../test/python.test-data.ts';
import { runPackageTests } from '../../test/python-package.ts';

/** The modules of each family of `ragen-env serve`, as the service's table has them. */
const TABLE = [
  ...readFileSync(
    fileURLToPath(new URL('./src/ragen_env/service/families.py', import.meta.url)),
    'utf8',
  ).matchAll(/^ {4}"(\w+)": Family\("[\w-]+", \(([^)]*)\)/gm),
].map(([, prefix, modules]) => ({
  prefix,
  modules: [...modules.matchAll(/"(\w+)"/g)].map(([, one]) => one),
}));
const OWN = ['numpy', 'httpx', 'websockets', 'pytest', 'starlette', 'uvicorn'];

t.equal(TABLE.length, 12, 'every family of the table is read');
for (const { prefix, modules } of TABLE) {
  // TextWorld's compiler makes the game that Jericho plays.
  const needed = prefix === 'jericho' ? [...modules, 'textworld'] : modules;
  const skip = lacksPython(...OWN, ...needed);
  t.test(`20 episodes of ${prefix} over REST`, { skip, timeout: PYTHON_MS }, async t => {
    const { code, text } = await runPackageTests(PYTHON, [
      'tests/test_families.py',
      '-k',
      `test_family and ${prefix} or test_what and ${prefix} or test_${prefix}_`,
    ]);
    t.equal(code, 0, text);
    t.match(text, /\d+ passed/);
    t.notMatch(text, /skipped/);
  });
}
