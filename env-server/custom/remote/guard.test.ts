import type { LookupAddress } from 'node:dns';
import { isIPv6 } from 'node:net';
import { setImmediate as immediate } from 'node:timers/promises';
import t from 'tap';
import { ForbiddenAddress, NetworkGuard, UnresolvedHost } from './network.ts';

const OPEN = { remoteHosts: '*', remoteNetworks: '' };
const addresses = (...list: string[]) => list.map(address => ({ address, family: isIPv6(address) ? 6 : 4 }));

/** A guard that resolves names to these answers; each look-up takes the next one. */
function guardWith(answers: { [host: string]: string[][] }, settings = OPEN) {
  const asked: string[] = [];
  const guard = new NetworkGuard(settings, async host => {
    asked.push(host);
    const next = answers[host]?.length > 1 ? answers[host].shift() : answers[host]?.[0];
    if (!next) throw Object.assign(new Error(`getaddrinfo ENOTFOUND ${host}`), { code: 'ENOTFOUND' });
    return addresses(...next);
  });
  return { guard, asked };
}

t.test('literal addresses of special networks are refused however they are written', async t => {
  const { guard } = guardWith({});
  const forbidden = [
    'http://127.0.0.1/',
    'http://127.1/',
    'http://2130706433/',
    'http://0x7f000001/',
    'http://0177.0.0.1/',
    'http://127.0.0.1.:80/',
    'http://0.0.0.0/',
    'http://10.0.0.1/',
    'http://100.64.1.1/',
    'http://169.254.169.254/latest/meta-data/',
    'http://172.16.0.1/',
    'http://172.31.255.255/',
    'http://192.168.1.1/',
    'http://192.0.2.1/',
    'http://198.18.0.1/',
    'http://224.0.0.1/',
    'http://255.255.255.255/',
    'http://127.0.0.01/',
    'http://１２７.0.0.1/',
    'http://0x7f.1/',
    'http://192.0.0.8/',
    'http://198.19.255.255/',
    'http://240.0.0.1/',
    'http://[::1]/',
    'http://[::127.0.0.1]/',
    'http://[::a00:1]/',
    'http://[::ffff:0:127.0.0.1]/',
    'http://[::ffff:0:a9fe:a9fe]/',
    'http://[64:ff9b::a00:1]/',
    'http://[64:ff9b:1::7f00:1]/',
    'http://[2001:0:7f00:1::]/',
    'http://[1::1]/',
    'http://[4000::1]/',
    'http://[100:0:0:1::1]/',
    'http://[::]/',
    'http://[::ffff:127.0.0.1]/',
    'http://[::ffff:a00:1]/',
    'http://[::ffff:169.254.169.254]/',
    'http://[64:ff9b::7f00:1]/',
    'http://[2002:7f00:1::]/',
    'http://[2001:db8::1]/',
    'http://[fc00::1]/',
    'http://[fd12:3456::1]/',
    'http://[fe80::1]/',
    'http://[ff02::1]/',
    'https://[::1]:8443/x',
    'ws://127.0.0.1/',
  ];
  for (const url of forbidden) t.throws(() => guard.checkUrl(new URL(url)), ForbiddenAddress, url);
  const public_ = [
    'http://93.184.216.34/',
    'https://[2606:4700::1]/',
    'http://[::ffff:93.184.216.34]/',
    'http://172.32.0.1/',
    'http://100.128.0.1/',
  ];
  for (const url of public_) guard.checkUrl(new URL(url));
});

t.test('other schemes and addresses with passwords are refused', async t => {
  const { guard } = guardWith({});
  for (const url of [
    'file:///etc/passwd',
    'ftp://example.org/',
    'gopher://example.org/',
    'http://a:b@example.org/',
  ]) {
    t.throws(() => guard.checkUrl(new URL(url)), ForbiddenAddress, url);
  }
});

t.test('the guard checks every address that a name resolves to', async t => {
  const { guard } = guardWith({
    'good.test': [['93.184.216.34', '2606:4700::1']],
    'mixed.test': [['93.184.216.34', '10.0.0.1']],
    'local.test': [['127.0.0.1']],
    'meta.test': [['::ffff:169.254.169.254']],
    'compatible.test': [['::10.0.0.1']],
    'translated.test': [['::ffff:0:10.0.0.1']],
    'zone.test': [['fe80::1%eth0']],
    'empty.test': [[]],
  });
  await guard.check(new URL('http://good.test/'), 'me');
  for (const host of ['mixed', 'local', 'meta', 'compatible', 'translated', 'zone', 'empty', 'absent']) {
    const name = `${host}.test`;
    await t.rejects(guard.check(new URL(`http://${name}/`), 'me'), new UnresolvedHost(name), host);
  }
});

t.test('a name keeps its first address, so that it cannot be pointed elsewhere later', async t => {
  const { guard, asked } = guardWith({ 'rebinding.test': [['93.184.216.34'], ['127.0.0.1']] });
  const url = new URL('http://rebinding.test/');
  await guard.check(url, 'me');
  const found = await new Promise<LookupAddress[]>((resolve, reject) =>
    guard.lookup('rebinding.test', { all: true }, (error, list) =>
      error ? reject(error) : resolve(list as LookupAddress[]),
    ),
  );
  t.same(found, [{ address: '93.184.216.34', family: 4 }]);
  const one = await new Promise<unknown>(resolve =>
    guard.lookup('REBINDING.test', { family: 4 }, (_error, address, family) => resolve([address, family])),
  );
  t.same(one, ['93.184.216.34', 4]);
  t.equal(asked.length, 1);

  guard.unpin(url);
  await t.rejects(guard.check(url, 'me'), UnresolvedHost, 'a new look-up is checked again');
  const error = await new Promise<Error | null>(resolve => guard.lookup('rebinding.test', {}, resolve));
  t.ok(error instanceof UnresolvedHost, 'and sockets get no address');
});

t.test('networks and hosts can be allowed and restricted', async t => {
  const { guard } = guardWith(
    { 'inner.example.org': [['10.1.2.3']], 'example.org': [['10.1.2.3']], 'far.example.org': [['10.2.0.1']] },
    { remoteHosts: '*.example.org, 10.1.0.9 ', remoteNetworks: '10.1.0.0/16,::1' },
  );
  await guard.check(new URL('http://inner.example.org/'), 'me');
  await guard.check(new URL('http://10.1.0.9/'), 'me');
  await t.rejects(guard.check(new URL('http://example.org/'), 'me'), /not on this server's list/);
  await t.rejects(
    guard.check(new URL('http://far.example.org/'), 'me'),
    /does not resolve to an address that this server may reach/,
  );
  await t.rejects(guard.check(new URL('http://evil-example.org/'), 'me'), /not on this server's list/);
  t.throws(
    () => new NetworkGuard({ remoteHosts: '*', remoteNetworks: '10.1.0.0/40' }),
    /networks like 10.1.0.0\/16/,
  );
  t.throws(() => new NetworkGuard({ remoteHosts: '*', remoteNetworks: 'home' }), /not "home"/);
});

t.test('the guard reports the address that a name was refused for to the operator', async t => {
  const refusals: object[] = [];
  const guard = new NetworkGuard(
    OPEN,
    async () => addresses('93.184.216.34', '10.0.0.7'),
    refusal => refusals.push(refusal),
  );
  await t.rejects(guard.check(new URL('http://inner.test/'), 'me'), UnresolvedHost);
  t.same(refusals, [{ host: 'inner.test', address: '10.0.0.7', network: '10.0.0.0/8 (private)' }]);
});

t.test('names that do not resolve delay their owner alone', async t => {
  const asked: string[] = [];
  const silent = new Set<() => void>();
  const guard = new NetworkGuard(OPEN, host => {
    asked.push(host);
    if (host === 'good.test') return Promise.resolve(addresses('93.184.216.34'));
    return new Promise((_, reject) => silent.add(() => reject(new Error('timeout'))));
  });
  const slow = ['a.slow.test', 'b.slow.test', 'good.test'].map(host =>
    guard.check(new URL(`http://${host}/`), 'other').catch(() => undefined),
  );
  // The other token asked for the same name first, behind other names.
  await guard.check(new URL('http://good.test/'), 'me');
  t.same(asked, ['a.slow.test', 'good.test'], 'an owner has one look-up at a time');
  const impatient = new AbortController();
  const late = guard.check(new URL('http://c.slow.test/'), 'me', impatient.signal);
  impatient.abort();
  await t.rejects(late, UnresolvedHost, 'nobody waits longer than its signal');
  const ended = Promise.all(slow);
  for (let over = false; !over; over = await Promise.race([ended.then(() => true), immediate(false)]))
    for (const end of silent) end();
  t.equal(asked.length, 4, 'a name that was resolved meanwhile is not asked for again');
});
