/**
 * `npm run test:python [-- PYTEST ARGUMENTS]`: types and tests of ragen-env, with the wheel's dependencies in a virtual
 * environment; without arguments also the tests with other packages, by the versions in `peers.json`.
 */

import { execFileSync } from 'node:child_process';
import { runPackageTests } from './run-tests.ts';
import { meetPeers, PROJECT, virtualEnvironment } from './venv.ts';

const python = virtualEnvironment(
  'ragen-env',
  '--editable',
  `${PROJECT}[gymnasium,fast,serve]`,
  'pytest',
  'mypy',
);
execFileSync(python, ['-m', 'mypy', 'src/ragen_env', 'tests'], {
  cwd: PROJECT,
  stdio: 'inherit',
  env: { ...process.env, MYPYPATH: 'tests' },
});
const { code, text } = await runPackageTests(python, process.argv.slice(2));
console.log(text);
process.exitCode = code;
if (process.argv.length === 2) {
  const failed = meetPeers();
  console.log(failed.length > 0 ? `peers: failed with ${failed.join(', ')}` : 'peers: all tests passed');
  if (failed.length > 0) process.exitCode = 1;
}
