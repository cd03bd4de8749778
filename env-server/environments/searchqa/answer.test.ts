import t from 'tap';
import { golden } from '../../../test/golden.test-data.ts';
import { extractAnswer, markAnswer, normalizeAnswer } from './answer.ts';

interface Golden {
  scoring: {
    answer: string;
    ground_truth: string | string[];
    reward: number;
    f1: number;
    precision: number;
    recall: number;
    em: boolean;
  }[];
  fallback_extraction: { response: string; extracted: string }[];
}

const DATA = golden<Golden>('search_reward.json');

t.test('marks are the golden ones', async t => {
  for (const { answer, ground_truth, em, ...wanted } of DATA.scoring) {
    const mark = markAnswer(answer, [ground_truth].flat());
    t.equal(mark.exact, em);
    for (const key of ['reward', 'f1', 'precision', 'recall'] as const) {
      t.ok(Math.abs(mark[key] - wanted[key]) < 1e-12, `${key} of ${answer}`);
    }
  }
});

t.test('answers are read out of free text as in the golden file', async t => {
  for (const { response, extracted } of DATA.fallback_extraction) t.equal(extractAnswer(response), extracted);
});

t.test('repeated words count once for each time they are wanted', async t => {
  const { precision, recall } = markAnswer('new new new york', ['new york new']);
  t.same([precision, recall], [3 / 4, 1]);
  t.equal(normalizeAnswer('  The  Café, an "Anthem"! '), 'café anthem');
});
