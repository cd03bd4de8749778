/**
 * The secret in the environment variable that a setting names; undefined where it names none.
 * @throws Error where the variable is not set
 */
export function secretOf(setting: string, variable: string | null): string | undefined {
  if (variable === null) return undefined;
  const secret = process.env[variable];
  if (secret) return secret;
  throw new Error(`${setting}: the environment variable ${variable} is not set`);
}
