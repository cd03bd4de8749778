import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { PARTS } from '../../test/parts/parts.ts';
import { readPeers } from '../../test/virtual-environment.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

t.test(
  'the page of clients names every version that the tests of Python and of parts install, and the day',
  async t => {
    const page = readFileSync(`${ROOT}docs/reference/compatibility.md`, 'utf8');
    const { met, groups } = readPeers();
    t.ok(page.includes(met), `the page names ${met}`);
    for (const { packages, tests } of Object.values(groups)) {
      for (const [name, version] of packages.map(one => one.split('=='))) {
        if (version) t.ok(page.includes(`\`${name}\` ${version}`), `the page has \`${name}\` ${version}`);
      }
      for (const test of tests) t.ok(existsSync(ROOT + test), test);
    }
    for (const { packages, bare = [], tests } of Object.values(PARTS)) {
      const [name, version] = [...bare, ...packages][0].replace(/\[.*?\]/, '').split('==');
      t.ok(page.includes(`\`${name}\` ${version}`), `the page has \`${name}\` ${version}`);
      for (const test of tests) t.ok(page.includes(`\`${test}\``) && existsSync(ROOT + test), test);
    }
  },
);
