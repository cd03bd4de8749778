import t from 'tap';
import { markdownText, textTable } from './text-table.ts';

const head = ['policy', 'tag', 'success %', '95 % interval', 'return', 'actions', 'turns', 'tokens'];
const row = ['runs/a-001/checkpoints/step-000100/policy', 'FrozenLake', '61.0', '50.1 to 70.9', '0.610'];
const rows = [
  [...row, '12.0', '6.1', '18.2'],
  ['random', 'FrozenLake', '1.5', '0.1 to 3.0', '0.015', '9.1', '5.0', ''],
];
const widest = (text: string) => Math.max(...text.split('\n').map(line => line.length));

t.test('a table keeps to every width, with all of its cells', async t => {
  for (const columns of [40, 60, 80, 100]) {
    const text = textTable(head, rows, { columns, keys: 2, ruled: true });
    t.ok(widest(text) <= columns, `${widest(text)} of ${columns}`);
    for (const cell of [...head, ...rows.flatMap(cells => cells.slice(1))]) t.ok(text.includes(cell), cell);
    t.match(text, /step-000100\/policy|…\S*policy/);
  }
});

t.test('a table without a terminal, or with room, is one', async t => {
  const whole = textTable(head, rows, { keys: 2 });
  t.equal(whole.split('\n').length, 3);
  t.ok(whole.includes(row[0]));
  t.equal(textTable(['a', 'b'], [['x', '1']], { numbers: true, columns: 80 }), 'a  b\nx  1');
});

t.test('Markdown of a report keeps to the width', async t => {
  const report = ['# sweep', '', `| ${head.join(' | ')} |`, '|---|---|---|---|---|---|---|---|']
    .concat(rows.map(cells => `| ${cells.join(' | ')} |`))
    .concat('', 'word '.repeat(40).trim());
  t.equal(markdownText(report.join('\n'), undefined), report.join('\n'));
  const text = markdownText(report.join('\n'), 80);
  t.ok(widest(text) <= 80);
  t.ok(text.includes('50.1 to 70.9'));
});
