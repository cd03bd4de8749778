import t from 'tap';
import { lacksPython, PYTHON, PYTHON_MS } from '../../test/python.test-data.ts';
import { runPackageTests } from '../../test/python-package.ts';

const skip = lacksPython(
  'gymnasium',
  'numpy',
  'httpx',
  'websockets',
  'PIL',
  'pytest',
  'starlette',
  'uvicorn',
);

t.test('ragen-env passes its tests, Gymnasium’s checks among them', { skip, timeout: PYTHON_MS }, async t => {
  const { code, text } = await runPackageTests(PYTHON, ['--ignore=tests/test_families.py']);
  t.equal(code, 0, text);
  t.match(text, /\d+ passed/);
  t.notMatch(text, /skipped/);
});
