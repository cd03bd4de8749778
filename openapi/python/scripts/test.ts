/** `npm run test:python [-- PYTEST ARGUMENTS]`: types and tests of ragen-env, with the wheel's dependencies in a virtual environment. */
import { execFileSync } from 'node:child_process';
import { runPackageTests } from './run-tests.ts';
import { PROJECT, virtualEnvironment } from './venv.ts';

const python = virtualEnvironment('--editable', `${PROJECT}[gymnasium,fast,serve]`, 'pytest', 'mypy');
execFileSync(python, ['-m', 'mypy', 'src/ragen_env', 'tests'], {
  cwd: PROJECT,
  stdio: 'inherit',
  env: { ...process.env, MYPYPATH: 'tests' },
});
const { code, text } = await runPackageTests(python, process.argv.slice(2));
console.log(text);
process.exitCode = code;
