import { shippedRecords } from '../core/datasets/records.ts';

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
