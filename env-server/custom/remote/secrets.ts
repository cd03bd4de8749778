import { createCipheriv, createDecipheriv, hash, randomBytes } from 'node:crypto';
import { linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { itemsOf } from '../../../shared/http/addresses.ts';
import { isObject, type JsonObject } from '../../../shared/json.ts';
import { temporaryName } from '../../../shared/replace-file.ts';

/** AES-256-GCM (NIST SP 800-38D) with the usual sizes of nonce and tag. */
const CIPHER = 'aes-256-gcm';
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** Prefix of the encrypted form. */
const FORM = 'v1';
const KEY_ID_LENGTH = 8;
const OWNER_ONLY = 0o600;

/** Shown in place of a header's value. */
export const NOT_SHOWN = '(not shown)';

/** A header in a definition: its text, the name of a variable that holds it, or its encrypted text in the database. */
export type HeaderValue = string | { readonly $env: string } | { readonly $sealed: string };
export type Headers = { readonly [name: string]: HeaderValue };

export interface SecretSettings {
  /** File of the key; undefined for a key that lasts as long as the process. */
  readonly keyFile: string | undefined;
  /**
   * Variables that definitions may name, separated by commas: `NAME`, `PREFIX*`, each with `@host` for that host only.
   */
  readonly allowedSecretVariables: string;
}

/** The value of a header is not available; the message gives the reason and the remedy. */
export class UnknownSecret extends Error {
  override readonly name = 'UnknownSecret';
}

interface SecretAllowance {
  readonly variable: string;
  readonly host: string | undefined;
}

/** Header values: encrypts them for the database, and decrypts them for requests. */
export class HeaderSecrets {
  readonly #keyFile: string | undefined;
  readonly #allowed: readonly SecretAllowance[];
  readonly #variables: NodeJS.ProcessEnv;
  #key: Buffer | undefined;

  constructor(settings: SecretSettings, variables: NodeJS.ProcessEnv = process.env) {
    this.#keyFile = settings.keyFile;
    this.#allowed = itemsOf(settings.allowedSecretVariables).map(item => {
      const [variable, host] = item.split('@', 2);
      return { variable, host };
    });
    this.#variables = variables;
  }

  /**
   * The definition with every literal header encrypted, bound to the environment and the header's name.
   * @returns the same object where there is nothing to encrypt
   * @throws Error when the key file can be neither read nor made
   */
  seal<T extends JsonObject>(envId: string, definition: T): T {
    if (!hasLiteralHeaders(definition)) return definition;
    const headers = Object.entries(definition.headers as Headers).map(([name, value]) => [
      name,
      typeof value === 'string' ? { $sealed: this.#encrypt(envId, name, value) } : value,
    ]);
    return { ...definition, headers: Object.fromEntries(headers) };
  }

  /**
   * The text of a header.
   * @param host its destination
   * @throws UnknownSecret
   */
  open(envId: string, name: string, value: HeaderValue, host: string): string {
    if (typeof value === 'string') return value;
    return '$env' in value ? this.#variable(value.$env, host) : this.#decrypt(envId, name, value.$sealed);
  }

  #variable(name: string, host: string): string {
    const allowed = this.#allowed.some(
      ({ variable, host: only }) => matches(variable, name) && (only === undefined || only === host),
    );
    if (!allowed) {
      throw new UnknownSecret(
        `the variable ${name} may not be sent to ${host}; --allowed-secret-variables lists those that may`,
      );
    }
    const value = this.#variables[name];
    if (value === undefined) throw new UnknownSecret(`the variable ${name} of the server is not set`);
    return value;
  }

  #encrypt(envId: string, name: string, text: string): string {
    this.#key ??= this.#keyFile === undefined ? randomBytes(KEY_BYTES) : readOrMakeKey(this.#keyFile);
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(CIPHER, this.#key, nonce).setAAD(purpose(envId, name));
    const body = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()]);
    const sealed = Buffer.concat([nonce, cipher.getAuthTag(), body]).toString('base64url');
    return [FORM, keyId(this.#key), sealed].join('.');
  }

  #decrypt(envId: string, name: string, sealed: string): string {
    const place = this.#keyFile ?? 'the key of an earlier process';
    const remedy = `Bring back the key file, or replace the environment with its headers`;
    this.#key ??= this.#keyFile === undefined ? undefined : readKey(this.#keyFile);
    if (!this.#key) {
      throw new UnknownSecret(`the key that encrypts the header "${name}" is missing: ${place}. ${remedy}`);
    }
    const [form, id, text = ''] = sealed.split('.');
    if (form !== FORM || id !== keyId(this.#key)) {
      throw new UnknownSecret(
        `the header "${name}" is encrypted with another key (${id}) than that of ${place} (${keyId(this.#key)}). ${remedy}`,
      );
    }
    try {
      const bytes = Buffer.from(text, 'base64url');
      const decipher = createDecipheriv(CIPHER, this.#key, bytes.subarray(0, NONCE_BYTES), {
        authTagLength: TAG_BYTES,
      });
      decipher.setAAD(purpose(envId, name));
      decipher.setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
      const body = bytes.subarray(NONCE_BYTES + TAG_BYTES);
      return decipher.update(body, undefined, 'utf8') + decipher.final('utf8');
    } catch {
      throw new UnknownSecret(`the header "${name}" was altered since it was encrypted. ${remedy}`);
    }
  }
}

/** True if a definition holds headers that only its service may see. */
export function hasLiteralHeaders({ headers }: JsonObject): boolean {
  return isObject(headers) && Object.values(headers).some(value => typeof value === 'string');
}

/** A definition of any form without its header values; references to variables stay. */
export function withoutSecrets<T>(definition: T): T {
  if (!isObject(definition) || !isObject(definition.headers)) return definition;
  const headers = Object.entries(definition.headers).map(([name, value]) => [
    name,
    isObject(value) && typeof value.$env === 'string' ? { $env: value.$env } : NOT_SHOWN,
  ]);
  return { ...definition, headers: Object.fromEntries(headers) };
}

function matches(pattern: string, name: string): boolean {
  return pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}

/** A value moved to another environment or header does not decrypt there. */
function purpose(envId: string, name: string): Buffer {
  return Buffer.from(JSON.stringify([envId, name.toLowerCase()]));
}

/** Identifies a key without revealing it. */
function keyId(key: Buffer): string {
  return hash('sha256', key, 'hex').slice(0, KEY_ID_LENGTH);
}

/** The key in a file; undefined when there is no file. */
function readKey(file: string): Buffer | undefined {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new UnknownSecret(`the key file ${file} cannot be read: ${(error as Error).message}`);
  }
  const key = Buffer.from(text.trim(), 'hex');
  if (key.length !== KEY_BYTES || !/^[0-9a-f]+$/i.test(text.trim())) {
    throw new UnknownSecret(`the key file ${file} must hold ${2 * KEY_BYTES} hexadecimal digits`);
  }
  return key;
}

/** Reads the key, or makes one. If several processes make it at once, one succeeds and all use its key. */
function readOrMakeKey(file: string): Buffer {
  const known = readKey(file);
  if (known) return known;
  mkdirSync(dirname(file), { recursive: true });
  const draft = temporaryName(file);
  writeFileSync(draft, `${randomBytes(KEY_BYTES).toString('hex')}\n`, { mode: OWNER_ONLY, flush: true });
  try {
    linkSync(draft, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    rmSync(draft);
  }
  return readKey(file) as Buffer;
}
