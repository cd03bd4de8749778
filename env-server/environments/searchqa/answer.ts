/**
 * Scores answers as in HotpotQA and SQuAD, and extracts an answer from free text, as in rLLM's and RAGEN's search
 * environments.
 */

/** A lower F1 scores 0. */
const MIN_F1 = 0.3;
/** Answers without partial credit. */
const WHOLE_ANSWERS = new Set(['yes', 'no', 'noanswer']);
const PUNCTUATION = /[!-/:-@[-`{-~]/g;
const ARTICLES = /(?<![\p{L}\p{N}_])(?:a|an|the)(?![\p{L}\p{N}_])/gu;

export interface AnswerMark {
  /** 1 for an exact match, else F1 when it is at least 0.3, else 0. */
  readonly reward: number;
  readonly f1: number;
  readonly precision: number;
  readonly recall: number;
  readonly exact: boolean;
}

const NO_MATCH = { f1: 0, precision: 0, recall: 0 };

/** Lower case without ASCII punctuation, articles and extra white space. */
export function normalizeAnswer(answer: string): string {
  return words(answer.toLowerCase().replaceAll(PUNCTUATION, '').replaceAll(ARTICLES, ' ')).join(' ');
}

/** The best score over all right answers. */
export function markAnswer(answer: string, right: readonly string[]): AnswerMark {
  let best = NO_MATCH;
  for (const candidate of right) {
    if (normalizeAnswer(answer) === normalizeAnswer(candidate)) {
      return { reward: 1, f1: 1, precision: 1, recall: 1, exact: true };
    }
    const overlap = tokenOverlap(answer, candidate);
    if (overlap.f1 > best.f1) best = overlap;
  }
  return { reward: best.f1 >= MIN_F1 ? best.f1 : 0, ...best, exact: false };
}

function tokenOverlap(answer: string, right: string): typeof NO_MATCH {
  const given = normalizeAnswer(answer);
  const wanted = normalizeAnswer(right);
  if (given !== wanted && (WHOLE_ANSWERS.has(given) || WHOLE_ANSWERS.has(wanted))) return NO_MATCH;
  const left = new Map<string, number>();
  for (const word of words(wanted)) left.set(word, (left.get(word) ?? 0) + 1);
  let common = 0;
  for (const word of words(given)) {
    const count = left.get(word) ?? 0;
    if (count > 0) common++;
    left.set(word, count - 1);
  }
  if (common === 0) return NO_MATCH;
  const precision = common / words(given).length;
  const recall = common / words(wanted).length;
  return { f1: (2 * precision * recall) / (precision + recall), precision, recall };
}

function words(text: string): string[] {
  return text.split(/\s+/).filter(Boolean);
}

const NOT_WORD = '[^\\p{L}\\p{N}_]';
const EDGES = new RegExp(`^${NOT_WORD}+|(?<!${NOT_WORD})${NOT_WORD}+$`, 'gu');
const ONLY_MARKS = new RegExp(`^${NOT_WORD}*$`, 'u');
const SHORTEST_EMPHASIS = 3;
const SHORTEST_CLAUSE = 4;
const SHORTEST_SENTENCE = 6;
const MAX_REST_LENGTH = 100;

/**
 * The answer in a free text, by the first of these that is found: `\boxed{}`, emphasis with asterisks, "the answer is"
 * or "therefore", the first sentence of some length, the beginning.
 */
export function extractAnswer(text: string): string {
  const response = text
    .trim()
    .replaceAll(/<think>.*?<\/think>/gs, '')
    .replaceAll(/\s+/g, ' ')
    .trim();
  const boxed = /\\boxed\{([^}]+)\}/.exec(response);
  if (boxed) return boxed[1].trim();
  for (const pattern of [/\*\*([^*]+)\*\*/g, /\*([^*]+)\*/g]) {
    for (const [, inner] of response.matchAll(pattern)) {
      const emphasis = inner.trim();
      if (length(emphasis) >= SHORTEST_EMPHASIS && !ONLY_MARKS.test(emphasis)) return emphasis;
    }
  }
  for (const pattern of [
    /(?:the\s+)?(?:correct\s+)?answer\s+is\s*:?\s*([^.!?]+)/i,
    /(?:therefore|thus|so|hence)\s*,?\s*([^.!?]+)/i,
  ]) {
    const clause = pattern.exec(response)?.[1].trim().replaceAll(EDGES, '') ?? '';
    if (length(clause) >= SHORTEST_CLAUSE) return clause;
  }
  const sentences = response.split(/[.!?]+/).map(sentence => sentence.trim());
  const sentence = sentences.find(candidate => length(candidate) >= SHORTEST_SENTENCE);
  return sentence ?? Array.from(response).slice(0, MAX_REST_LENGTH).join('').trim();
}

function length(text: string): number {
  return Array.from(text).length;
}
