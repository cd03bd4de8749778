import t from 'tap';
import { printable, printableLines } from './printable.ts';

t.test('untrusted text can neither control a terminal nor imitate other lines', async t => {
  t.equal(
    printable('ok\x1b]0;owned\x07\r\nragen: done\u2028\x9b2J\u202e'),
    'ok\\u001b]0;owned\\u0007\\u000d\\u000aragen: done\\u2028\\u009b2J\\u202e',
  );
  t.equal(printable('Größe 10 µm → 漢字 😀'), 'Größe 10 µm → 漢字 😀');
});

t.test('a text of several lines keeps them', async t => {
  t.equal(printableLines('one\n\ttwo\r\x1b[A'), 'one\n\ttwo\\u000d\\u001b[A');
});
