import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomUUID,
} from 'node:crypto';
import { linkSync, lstatSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';

/** Rights of the group and of others. */
const OTHERS = 0o077;

/** The key with which an author signs results, and its public part: 32 bytes as base64url. */
export interface SigningKey {
  readonly privateKey: KeyObject;
  readonly publicKey: string;
  readonly file: string;
}

/** The file of the key, in the folder of the user's settings: never in a run folder, which is given to others. */
export function signingKeyFile(env: Readonly<Record<string, string | undefined>> = process.env): string {
  return join(env.XDG_CONFIG_HOME || join(homedir(), '.config'), 'ragen', 'signing-key.pem');
}

/**
 * The author's Ed25519 key, made on first use.
 * @throws Error for a file that others can read, or that holds no such key
 */
export function openSigningKey(file = signingKeyFile()): SigningKey {
  const stats = lstatSync(file, { throwIfNoEntry: false });
  if (!stats) makeKey(file);
  else if (!stats.isFile()) throw new Error(`${file} is no ordinary file`);
  else if (process.platform !== 'win32' && (stats.mode & OTHERS) !== 0)
    throw new Error(`${file}: others can read this private key; chmod 600 it, or remove it to get a new one`);
  let privateKey: KeyObject;
  try {
    privateKey = createPrivateKey(readFileSync(file));
  } catch (error) {
    throw new Error(`${file} holds no private key: ${(error as Error).message}; remove it to get a new one`);
  }
  if (privateKey.asymmetricKeyType !== 'ed25519')
    throw new Error(`${file} holds a ${privateKey.asymmetricKeyType} key, not Ed25519`);
  const { x } = createPublicKey(privateKey).export({ format: 'jwk' });
  return { privateKey, publicKey: x!, file };
}

/** Puts a new key in place whole; where another process was first, its key stays. */
function makeKey(file: string): void {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  const partial = `${file}.${randomUUID()}`;
  const pem = generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' });
  writeFileSync(partial, pem, { flag: 'wx', mode: 0o600 });
  try {
    linkSync(partial, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    rmSync(partial);
  }
}
