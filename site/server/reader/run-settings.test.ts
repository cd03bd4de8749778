import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { liveBytes } from '../../../test/live-bytes.test-data.ts';
import { RunSettings } from './run-settings.ts';

const NAMES = 20_000;
const NAME_LENGTH = 900;

t.test(
  'names of queries are found by their end, and a client that makes many up costs no memory',
  async t => {
    const path = t.testdir();
    writeFileSync(join(path, 'config.yaml'), 'rollout:\n  group_size: 8\n');
    const settings = new RunSettings();
    await settings.read([{ id: 'a', path, changedMs: 1, hasStatus: false, annotatedMs: undefined }]);
    const before = await liveBytes();
    for (let i = 0; i < NAMES; i++) {
      if (settings.value('a', Buffer.alloc(NAME_LENGTH, `${i} `).toString()) !== undefined)
        t.fail('a setting that no run has');
    }
    const kept = (await liveBytes()) - before;
    t.ok(kept < (NAMES * NAME_LENGTH) / 4, `${kept} bytes are kept of ${NAMES * NAME_LENGTH}`);
    t.equal(settings.value('a', 'group_size'), 8);
    t.equal(settings.value('a', 'rollout.group_size'), 8);
  },
);
