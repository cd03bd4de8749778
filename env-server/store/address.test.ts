import t from 'tap';
import { storeAddressOf } from './address.ts';

t.test('addresses of stores are read, and wrong ones say what would be right', async t => {
  const options = (text: string, env = {}) => storeAddressOf(text, env).options;
  t.match(options('valkey://h:7000/2'), { host: 'h', port: 7000, db: 2 });
  t.match(options('valkey://u:p%40@h'), { host: 'h', port: 6379, username: 'u', password: 'p@' });
  t.match(options('rediss://[::1]:1'), { host: '::1', port: 1, tls: {} });
  t.match(options('valkey+unix:///run/v.sock'), { path: '/run/v.sock' });
  t.match(options('valkey+sentinel://a:1,b/main'), {
    sentinels: [
      { host: 'a', port: 1 },
      { host: 'b', port: 26379 },
    ],
    name: 'main',
    failoverDetector: true,
  });
  t.match(options('valkey://h', { RAGEN_STORE_PASSWORD: 'x' }), { password: 'x' });
  t.match(options('valkey://u:a:b%2Fd@h'), { password: 'a:b/d' });
  t.match(options('valkeys+sentinel://a/main'), { tls: {}, sentinelTLS: {}, enableTLSForSentinelMode: true });
  t.throws(() => options('valkey://u:50%@h'), /percent-encoded/);
  t.throws(() => options('valkey://u:secret/word@h'), { message: /^((?!secret|word).)*$/ });
  t.equal(storeAddressOf('valkey://h?prefix=a:').prefix, 'a:');
  t.equal(storeAddressOf('valkey://u:secret@h').shown, 'valkey://***@h');
  for (const wrong of [
    '',
    'h:1',
    'http://h',
    'valkey+unix://',
    'valkey+sentinel://a',
    'valkey://h/x',
    'valkey://u:secret@:1',
  ])
    t.throws(() => storeAddressOf(wrong), /valkey/, wrong);
  t.throws(() => storeAddressOf('valkey://u:secret@:1'), { message: /^((?!secret).)*$/ });
  t.throws(() => options('valkeys://h', { RAGEN_STORE_CA: '/none.pem' }), /RAGEN_STORE_CA.*none\.pem/);
});
