import { execFileSync } from 'node:child_process';
import t from 'tap';

const MODULE = new URL('./python.test-data.ts', import.meta.url);

function pythonWith(value: string | undefined): string {
  const { RAGEN_PYTHON: _, ...env } = process.env;
  return execFileSync(process.execPath, ['-e', `import('${MODULE}').then(m => console.log(m.PYTHON))`], {
    env: value === undefined ? env : { ...env, RAGEN_PYTHON: value },
    encoding: 'utf8',
  }).trim();
}

t.test('RAGEN_PYTHON names the interpreter, and an empty one counts as unset', async t => {
  t.equal(pythonWith('/opt/python'), '/opt/python');
  t.equal(pythonWith(''), 'python3');
  t.equal(pythonWith(undefined), 'python3');
});
