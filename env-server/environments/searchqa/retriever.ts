import { textOf } from '../../../shared/http/chunks.ts';
import { orAborted } from '../../../shared/http/retry.ts';
import { type Json, parseJson } from '../../../shared/json.ts';
import { RecentMap, remembered } from '../../../shared/remembered.ts';
import { Bm25Index } from '../core/datasets/bm25.ts';
import { shippedRecords } from '../core/datasets/records.ts';
import { checkServiceAddress } from '../core/datasets/service-address.ts';
import { InvalidConfig } from '../core/environment.ts';

export interface RetrievedDocument {
  readonly id: string;
  readonly text: string;
  readonly score: number;
}

/** Finds documents for a query. */
export interface Retriever {
  search(query: string, topK: number): readonly RetrievedDocument[] | Promise<readonly RetrievedDocument[]>;
}

/** The retriever did not answer, or broke its protocol. */
export class RetrievalFailed extends Error {
  override readonly name = 'RetrievalFailed';
}

const indexes = new WeakMap<readonly Document[], Retriever>();

/** BM25 over a corpus in memory; the index is built once for each list of documents. */
export function indexRetriever(documents: readonly Document[]): Retriever {
  return remembered(indexes, documents, (): Retriever => {
    const index = new Bm25Index(documents.map(document => document.text));
    return {
      search: (query, topK) =>
        index.search(query, topK).map(({ document, score }) => {
          const { id, text } = documents[document];
          return { id, text, score };
        }),
    };
  });
}

/** Hosts of retrievers besides the loopback ones, separated by commas. */
const RETRIEVER_HOSTS_VARIABLE = 'RAGEN_RETRIEVER_HOSTS';
/** Milliseconds for which a retriever that answered `GET /health` counts as healthy. */
const HEALTHY_MS = 60_000;
const MAX_CACHED = 10_000;
const MAX_REPLY_LENGTH = 4 * 1024 * 1024;

const retrievers = new Map<string, HttpRetriever>();

/**
 * The client of an external retriever: `POST /retrieve {query, top_k}`. One for each address, so that all sessions
 * share its cache.
 * @throws InvalidConfig for a forbidden address
 */
export function httpRetriever(url: string): HttpRetriever {
  return remembered(
    retrievers,
    url,
    () => new HttpRetriever(checkServiceAddress('/retriever/url', url, RETRIEVER_HOSTS_VARIABLE)),
  );
}

/** See {@link httpRetriever}. Replies are cached, least recently used ones dropped first; failures are not. */
class HttpRetriever {
  readonly #url: string;
  readonly #cache = new RecentMap<string, readonly RetrievedDocument[]>(MAX_CACHED);
  #healthyUntil = 0;

  constructor(url: string) {
    this.#url = url;
  }

  /** @throws InvalidConfig unless `GET /health` answers 200 in time */
  async checkHealth(timeoutMs: number): Promise<void> {
    if (performance.now() < this.#healthyUntil) return;
    try {
      const { statusCode, body } = await this.#request('health', {}, timeoutMs);
      await body.dump();
      if (statusCode !== 200) throw new Error(`status ${statusCode}`);
    } catch (error) {
      throw new InvalidConfig('/retriever/url', `${this.#url}/health does not answer: ${reason(error)}`);
    }
    this.#healthyUntil = performance.now() + HEALTHY_MS;
  }

  /** @throws RetrievalFailed */
  async search(query: string, topK: number, timeoutMs: number): Promise<readonly RetrievedDocument[]> {
    const key = `${topK} ${query}`;
    const known = this.#cache.get(key);
    if (known) return known;
    const found = readReply(await this.#post({ query, top_k: topK }, timeoutMs)).slice(0, topK);
    this.#cache.set(key, found);
    return found;
  }

  async #request(route: string, sent: object, timeoutMs: number) {
    const { request } = await import('undici');
    const signal = AbortSignal.timeout(timeoutMs);
    // undici looks at the signal of a request when it is connected.
    return orAborted(request(`${this.#url}/${route}`, { ...sent, signal }), signal);
  }

  async #post(payload: Json, timeoutMs: number): Promise<string> {
    try {
      const headers = { 'content-type': 'application/json', accept: 'application/json' };
      const sent = { method: 'POST', headers, body: JSON.stringify(payload) };
      const { statusCode, body } = await this.#request('retrieve', sent, timeoutMs);
      const text = await textOf(body, { maxBytes: MAX_REPLY_LENGTH });
      if (statusCode !== 200) throw new Error(`status ${statusCode}`);
      return text;
    } catch (error) {
      throw new RetrievalFailed(`the retriever failed: ${reason(error)}`);
    }
  }
}

function readReply(text: string): RetrievedDocument[] {
  const reply = parseJson(text) as { results?: unknown } | null | undefined;
  if (reply == null) throw new RetrievalFailed('the retriever failed: its reply is not JSON');
  const { results } = reply;
  if (!Array.isArray(results))
    throw new RetrievalFailed('the retriever failed: its reply has no list `results`');
  return results.map(
    (result: { id?: unknown; content?: unknown; text?: unknown; score?: unknown }, index) => {
      const text = result?.content ?? result?.text;
      if (typeof text !== 'string') {
        throw new RetrievalFailed(`the retriever failed: results[${index}] has no text \`content\``);
      }
      const { id, score } = result;
      return { id: String(id ?? index + 1), text, score: typeof score === 'number' ? score : 0 };
    },
  );
}

function reason(error: unknown): string {
  const { name, message, code } = error as Error & { code?: string };
  return name === 'TimeoutError' ? 'no reply in time' : (code ?? message);
}

/** SearchQA's own corpus: an invented country, so that only a search can find its facts. */

export interface Document {
  readonly id: string;
  readonly title: string;
  readonly text: string;
}

export interface QuestionRecord {
  readonly question: string;
  /** All answers that count as right. */
  readonly answers: readonly string[];
}

/** The documents. Their order matters: it decides between equal scores of a search. */
export const DOCUMENTS: readonly Document[] = shippedRecords(new URL('./documents.jsonl', import.meta.url));

/** Questions that join facts of two or three documents. Their order matters: seeds draw from it. */
export const QUESTIONS: readonly QuestionRecord[] = shippedRecords(
  new URL('./questions.jsonl', import.meta.url),
);
