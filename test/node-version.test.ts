import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';

const ROOT = join(import.meta.dirname, '..');
/** Makes a process pass for one of Node 20. */
const OLD =
  "data:text/javascript,Object.defineProperty(process,'versions',{value:{...process.versions,node:'20.19.0'}});Object.defineProperty(process,'version',{value:'v20.19.0'})";

const underOld = (cwd: string, ...args: string[]) =>
  spawnSync(process.execPath, ['--import', OLD, ...args], { cwd, encoding: 'utf8' });

t.test('a program of the package under Node 20 without the Node it brings says so in a line', async t => {
  // Outside the repository, where nothing brings a Node.
  const folder = mkdtempSync(join(tmpdir(), 'ragen-node-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  cpSync(join(ROOT, 'bin'), join(folder, 'bin'), { recursive: true });
  for (const program of ['ragen', 'ragen-env-server']) {
    const { status, stderr, stdout } = underOld('/', join(folder, 'bin', `${program}.js`), '--help');
    t.equal(status, 1);
    t.equal(stdout, '');
    t.match(stderr, /^This Node is v20\.19\.0, and ragen needs 24: .*\n$/);
  }
});

t.test('the programs of the repository under Node 20 say so in a line', async t => {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  for (const name of ['start', 'env-server', 'trainer']) {
    const [node, ...args] = scripts[name].split(' ');
    t.equal(node, 'node');
    const { status, stderr } = underOld(ROOT, ...args, '--help');
    t.equal(status, 1);
    t.match(stderr, /^This Node is v20\.19\.0, and ragen needs 24: .*\n$/);
  }
});
