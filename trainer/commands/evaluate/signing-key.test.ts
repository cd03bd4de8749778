import { generateKeyPairSync } from 'node:crypto';
import { chmodSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { openSigningKey, signingKeyFile } from './sign-results.ts';

t.test('a key is made on first use, for its owner alone, and stays', async t => {
  const file = join(t.testdir(), 'settings', 'ragen', 'signing-key.pem');
  const made = openSigningKey(file);
  t.match(made.publicKey, /^[\w-]{43}$/);
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.equal(statSync(join(file, '..')).mode & 0o777, 0o700);
  t.same(readdirSync(join(file, '..')), ['signing-key.pem'], 'nothing else is left');
  t.equal(openSigningKey(file).publicKey, made.publicKey);
  t.match(readFileSync(file, 'utf8'), /^-----BEGIN PRIVATE KEY-----/);
});

t.test('a key that others can read, a link and another kind of key are refused', async t => {
  const file = join(t.testdir(), 'signing-key.pem');
  openSigningKey(file);
  chmodSync(file, 0o640);
  t.throws(() => openSigningKey(file), /others can read this private key; chmod 600 it/);
  symlinkSync(file, `${file}.link`);
  t.throws(() => openSigningKey(`${file}.link`), /not a regular file/);
  rmSync(file);
  writeFileSync(file, 'nothing', { mode: 0o600 });
  t.throws(() => openSigningKey(file), /holds no private key/);
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  writeFileSync(file, privateKey.export({ type: 'pkcs8', format: 'pem' }));
  t.throws(() => openSigningKey(file), /holds a ec key, not Ed25519/);
});

t.test('it lies in the folder of the user’s settings', async t => {
  t.equal(signingKeyFile({ XDG_CONFIG_HOME: '/c' }), '/c/ragen/signing-key.pem');
  t.match(signingKeyFile({}), /\.config\/ragen\/signing-key\.pem$/);
});
