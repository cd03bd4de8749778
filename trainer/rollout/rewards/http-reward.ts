import { request } from 'undici';
import { type HookEpisode, RewardFault, type RewardHook } from './reward-hook.ts';

export interface HttpRewardSettings {
  readonly url: string;
  readonly mode: RewardHook['mode'];
  /** For one episode, from the request to the last byte. */
  readonly timeoutMs: number;
  /** Largest reply, in bytes. */
  readonly maxBytes: number;
  /** Bearer token, where it wants one. */
  readonly token?: string;
}

/** Rewards by a service: each episode is sent with POST as JSON, and answered by JSON. */
export class HttpReward implements RewardHook {
  readonly name: string;
  readonly mode: RewardHook['mode'];
  readonly #settings: HttpRewardSettings;

  constructor(settings: HttpRewardSettings) {
    this.#settings = settings;
    this.name = settings.url;
    this.mode = settings.mode;
  }

  async ask(episode: HookEpisode): Promise<unknown> {
    const { url, timeoutMs, maxBytes, token } = this.#settings;
    const signal = AbortSignal.timeout(timeoutMs);
    try {
      const { statusCode, body } = await request(url, {
        method: 'POST',
        body: JSON.stringify(episode),
        headers: {
          'content-type': 'application/json',
          ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        },
        signal,
      });
      const chunks: Buffer[] = [];
      let bytes = 0;
      for await (const chunk of body as AsyncIterable<Buffer>) {
        bytes += chunk.length;
        if (bytes > maxBytes) {
          body.destroy();
          throw new RewardFault(this, `answered with more than ${maxBytes} bytes`);
        }
        chunks.push(chunk);
      }
      const text = Buffer.concat(chunks).toString('utf8');
      if (statusCode !== 200)
        throw new RewardFault(this, `answered with status ${statusCode}: ${text.slice(0, 200)}`);
      return JSON.parse(text);
    } catch (error) {
      if (error instanceof RewardFault) throw error;
      const why = signal.aborted
        ? `took more than ${timeoutMs / 1000} s`
        : `failed: ${(error as Error).message}`;
      throw new RewardFault(this, why, { cause: error });
    }
  }

  async close(): Promise<void> {}
}
