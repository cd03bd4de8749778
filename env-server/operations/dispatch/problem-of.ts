import { InvalidConfig, InvalidOptions } from '../../environments/core/environment.ts';
import { UnknownEnvironment } from '../../environments/registry.ts';
import { Problem } from '../../problems.ts';

/** A thrown value as a problem with a code. */
export function problemOf(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof UnknownEnvironment) return new Problem('unknown_environment', error.message);
  if (error instanceof InvalidConfig) return invalid(`/config${error.pointer}`, error.message);
  if (error instanceof InvalidOptions) return invalid(`/options${error.pointer}`, error.message);
  return new Problem('internal', 'the server failed; its log has the cause', { cause: error });
}

function invalid(pointer: string, detail: string): Problem {
  return new Problem('invalid_request', detail, { violations: [{ pointer, detail }] });
}
