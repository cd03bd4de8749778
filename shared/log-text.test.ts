import t from 'tap';
import { readLogLine } from './log-text.ts';

t.test('log lines are read as text', async t => {
  t.same(readLogLine('{"level":40,"time":1,"msg":"the disk is full"}'), {
    text: 'warning: the disk is full',
    isWarning: true,
  });
  t.same(readLogLine('{"level":50,"msg":"failed","err":{"message":"no room"}}'), {
    text: 'error: failed: no room',
    isWarning: true,
  });
  t.same(readLogLine('{"level":30,"msg":"ready"}'), { text: 'info: ready', isWarning: false });
  t.same(
    readLogLine(
      '{"level":30,"msg":"\\u001b[31mred\\nfatal: gone\\u009b2J\\u2028","err":{"message":"a\\rb\\u007f"}}',
    ),
    {
      text: 'info: \\u001b[31mred\\u000afatal: gone\\u009b2J\\u2028: a\\u000db\\u007f',
      isWarning: false,
    },
  );
  for (const line of ['listening on http://127.0.0.1', '{"level":"x"}', '{half'])
    t.equal(readLogLine(line), undefined);
});
