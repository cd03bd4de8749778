import t from 'tap';
import { isLoopback, networkOf } from './addresses.ts';

t.test('clients are distinguished by address, those of one IPv6 network are not', async t => {
  t.equal(networkOf('192.0.2.7'), '192.0.2.7');
  t.equal(networkOf('::ffff:192.0.2.7'), '192.0.2.7');
  t.equal(networkOf('2001:db8:1:2:3:4:5:6'), '2001:db8:1:2');
  t.equal(networkOf('2001:db8:1:2::9'), '2001:db8:1:2');
  t.equal(networkOf('2001:db8::9'), '2001:db8:0:0');
  t.equal(networkOf('::1'), '0:0:0:0');
});

t.test('addresses of this machine, in every form', async t => {
  for (const host of [
    '127.0.0.1',
    '127.9.9.9',
    'LocalHost',
    '::1',
    '[::1]',
    '0:0:0:0:0:0:0:1',
    '::ffff:127.0.0.1',
  ])
    t.ok(isLoopback(host), host);
  for (const host of ['127.1', '127.evil.example', '0.0.0.0', '::', '[::2]', '::ffff:10.0.0.1', ''])
    t.notOk(isLoopback(host), host);
});
