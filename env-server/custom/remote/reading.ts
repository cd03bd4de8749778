import { InvalidAnswer } from '../answer.ts';
import type { Endpoint } from './endpoint.ts';

/**
 * Reads a service's answer.
 * @throws Problem `remote_failed` when it is malformed
 */
export function reading<T>(endpoint: Endpoint, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof InvalidAnswer)) throw error;
    throw endpoint.failed(`gave a wrong answer: ${error.message}`);
  }
}
