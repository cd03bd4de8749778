import type { Json, JsonObject } from '../../../shared/json.ts';
import { InvalidField, textField } from '../core/datasets/records.ts';
import type { Document, QuestionRecord } from './world.ts';

const ANSWER_FIELDS = ['ground_truth', 'answer', 'answers', 'golden_answers'];

/** A record of HotpotQA, or of RAGEN's preparation of it: a question and one or more answers. @throws InvalidField */
export function readQuestion(record: JsonObject): QuestionRecord {
  const field = ANSWER_FIELDS.find(name => record[name] !== undefined && record[name] !== null);
  if (!field) throw new InvalidField('answer', `expected one of the fields ${ANSWER_FIELDS.join(', ')}`);
  const answers = [record[field]].flat() as Json[];
  if (answers.length === 0 || !answers.every(answer => typeof answer === 'string' && answer.trim() !== '')) {
    throw new InvalidField(field, 'expected a text or a list of texts');
  }
  return { question: textField(record, 'question'), answers: answers as string[] };
}

/** A document of a corpus: `text` or `contents`, with `title` and `id` if there are any. @throws InvalidField */
export function readDocument(record: JsonObject): Document {
  const text = textField(
    record,
    record.text === undefined && record.contents !== undefined ? 'contents' : 'text',
  );
  const title = typeof record.title === 'string' ? record.title : '';
  const { id } = record;
  const name = typeof id === 'string' || typeof id === 'number' ? String(id) : title;
  return { id: name, title, text: title !== '' && !text.startsWith(title) ? `${title}. ${text}` : text };
}
