import { Writable } from 'node:stream';
import t from 'tap';
import { barLine, openProgress, plainProgress, shownCount, shownDuration, shownShare } from './progress.ts';

t.test('plain lines come every few seconds, and the last unit is never left out', async t => {
  let time = 0;
  const lines: string[] = [];
  const progress = plainProgress({ write: text => lines.push(text) }, () => time);
  progress.begin('train', 10, 0);
  progress.update(1, { success: '20 %', left: '3 s' });
  time = 2000;
  progress.update(2, { success: '21 %' });
  progress.note('server is back');
  time = 6000;
  progress.update(3, { success: '22 %' });
  progress.update(4, { success: '23 %' });
  progress.end();
  t.same(lines, [
    'train 1/10 · success 20 % · left 3 s\n',
    'server is back\n',
    'train 3/10 · success 22 %\n',
    'train 4/10 · success 23 %\n',
  ]);
  progress.begin('validate', 2, 0);
  progress.update(2, {});
  progress.end();
  t.same(lines.slice(4), ['validate 2/2\n'], 'a finished stage is written once');
});

t.test('the log level says what is shown', async t => {
  const shown = (level?: 'silent' | 'error' | 'warn' | 'info' | 'debug') => {
    let text = '';
    const stream = new Writable({
      write(chunk, _encoding, done) {
        text += chunk;
        done();
      },
    });
    const progress = openProgress(stream, level);
    progress.begin('train', 1, 0);
    progress.update(1, {});
    progress.note('folder');
    progress.warn('server is away');
    progress.end();
    return text;
  };
  const all = 'train 1/1\nfolder\nserver is away\n';
  t.same([shown(), shown('debug'), shown('info')], [all, all, all]);
  t.equal(shown('warn'), 'server is away\n');
  t.same([shown('error'), shown('silent')], ['', '']);
});

t.test('a terminal has one line that is drawn again, and notes above it', async t => {
  let written = '';
  const stream = { isTTY: true, columns: 60, write: (text: string) => (written += text) };
  const progress = openProgress(stream);
  progress.begin('train', 2, 0);
  progress.update(1, { success: '20 %' });
  progress.note('server is back');
  progress.update(2, { success: '21 %' });
  progress.end();
  progress.end();
  const bar = (text: string) => `\r${text}\x1b[K`;
  const parts = [
    '\x1b[?25l',
    bar(`train ${'░'.repeat(24)} 0/2`),
    '\r\x1b[Kserver is back\n',
    bar(`train ${'█'.repeat(12)}${'░'.repeat(12)} 1/2 · success 20 %`),
    bar(`train ${'█'.repeat(24)} 2/2 · success 21 %`),
    '\n\x1b[?25h',
  ];
  t.equal(written, parts.join(''));
});

t.test('numbers are shown short', async t => {
  t.same([45.4, 200, 3720].map(shownDuration), ['45 s', '3 min 20 s', '1 h 02 min']);
  t.same([0.004, 0.666].map(shownShare), ['0.4 %', '67 %']);
  t.same([950, 1234, 45_600, 1_230_000].map(shownCount), ['950', '1.2k', '46k', '1.2M']);
});

t.test('a short line keeps the time left, then the bar shrinks', async t => {
  const numbers = ['left 3 min 20 s', 'success 41 %', 'return 0.40', 'tokens/s 4.1k'];
  const line = (columns: number, colored = false) =>
    barLine({ progress: 0.5, value: 50, total: 100, stage: 'training', numbers, columns, colored });
  t.equal(
    line(120),
    'training ████████████░░░░░░░░░░░░ 50/100 · left 3 min 20 s · success 41 % · return 0.40 · tokens/s 4.1k',
  );
  t.match(line(60), /left 3 min 20 s · success 41 %$/);
  t.match(line(40), /^training [█░▌]+ 50\/100 · left 3 min 20 s$/);
  t.equal(line(30), 'left 3 min 20 s');
  for (let columns = 1; columns < 120; columns++) t.ok(line(columns).length < columns, String(columns));
  t.ok(line(100, true).includes('\u001b[32m█'));
});
